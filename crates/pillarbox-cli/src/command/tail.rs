//! `pillarbox tail`

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use clap::ArgAction;
use pillarbox_relay::store::admin::Recent;
use serde_json::json;

use crate::output::{Answer, Context, open_store, store_error};

/// Show events as they are committed
///
/// Reads the table and does not disturb relays. Every event shown is committed, and each line has
/// the state of its delivery at that moment.
///
///   pillarbox tail
///   pillarbox tail -n 50 --follow=false
///   pillarbox tail --json | jq -c '[.event.topic, .status]'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// How many of the latest events to show first
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
    lines: u16,
    /// Continue with what is committed from now on
    #[arg(long, action = ArgAction::Set, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    follow: bool,
}

/// How far back each read goes. A transaction that commits later than this many others is missed.
const LOOK_BACK: usize = 1_000;
const EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    let open = open_store(&settings)?;
    let look = async |count| open.admin.recent(count).await.map_err(store_error);
    let latest = look(LOOK_BACK).await?;
    let skipped = latest.len().saturating_sub(args.lines.into());
    for event in &latest[skipped..] {
        print(event, context)?;
    }
    let mut seen: BTreeSet<i64> = latest.iter().map(|recent| recent.event.seq).collect();
    if !args.follow {
        return Ok(Answer::Yes);
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Answer::Yes),
        }
        let latest = look(LOOK_BACK).await?;
        // All rows are new: more events were committed since the last read than one read returns.
        if latest.len() == LOOK_BACK
            && !seen.is_empty()
            && latest.iter().all(|recent| !seen.contains(&recent.event.seq))
        {
            context.say("… too many events were committed at once; some are not shown");
        }
        for recent in latest.iter().filter(|recent| !seen.contains(&recent.event.seq)) {
            print(recent, context)?;
        }
        seen = latest.iter().map(|recent| recent.event.seq).collect();
    }
}

fn print(recent: &Recent, context: &Context) -> Result<()> {
    let stored = &recent.event;
    if context.json {
        return context.print_json(&json!({
            "seq": stored.seq,
            "status": recent.status,
            "attempts": stored.attempts,
            "created_at": stored.created_at,
            "event": stored.event,
        }));
    }
    let status = match recent.status.as_str() {
        "published" => context.good("published"),
        "dead" | "failed" => context.bad(&recent.status),
        other => other.to_owned(),
    };
    let event = &stored.event;
    context.print(&format!(
        "{}  {status:<9}  {}  {}  {}/{}  {}",
        context.quiet(&format!("{:.3}", stored.created_at)),
        context.strong(&event.topic),
        event.event_type,
        event.aggregate_type,
        event.aggregate_id,
        context.quiet(&excerpt(&event.payload)),
    ))
}

/// The beginning of a payload, on one line and without control characters.
fn excerpt(payload: &[u8]) -> String {
    const CHARACTERS: usize = 100;
    let text = String::from_utf8_lossy(&payload[..payload.len().min(4 * CHARACTERS)]);
    let mut short: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(CHARACTERS)
        .collect();
    if payload.len() > short.len() {
        short.push('…');
    }
    short
}
