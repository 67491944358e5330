//! `pillarbox status`

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use anyhow::Result;
use pillarbox_relay::{
    health::{Health, Part, PartHealth, of_database},
    pressure::{Level, Standing},
    store::admin::StoreStatus,
};
use serde::Serialize;

use crate::output::{Answer, Context, open_store, span, store_error, table};

/// Show the state of the outbox: what is pending, failed or dead, and which relays run
///
/// The cost depends on the number of unsettled events, not on how many were ever delivered. Exits 2
/// if the database can't be reached. What is wrong is named by part: publisher, performance, data;
/// `outbox.monitoring` has the limits. If `outbox.backpressure` sets limits, it also shows each
/// class, and whether its producers are slowed or refused now.
///
///   pillarbox status
///   pillarbox status --watch
///   pillarbox status --json | jq .pending
///   pillarbox status --json | jq '.pressure[] | select(.producers != "free")'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Repeat every second until Ctrl-C; with --json one line each time
    #[arg(long)]
    watch: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a StoreStatus,
    health: &'a BTreeMap<Part, PartHealth<'a>>,
}

const EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    let open = open_store(&settings)?;
    loop {
        let status = open.admin.status().await.map_err(store_error)?;
        let sample = open.admin.sample().await.map_err(store_error)?;
        let health = of_database(&sample, &settings.monitoring.limits);
        if context.json {
            let parts = health.parts();
            context.print_json(&Shown {
                status: &status,
                health: &parts,
            })?;
        } else {
            let clear = if args.watch && context.terminal {
                "\x1b[H\x1b[2J"
            } else {
                ""
            };
            context.print(&format!("{clear}{}", shown(&status, &health, context)))?;
        }
        if !args.watch {
            return Ok(Answer::Yes);
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Answer::Yes),
        }
    }
}

fn shown(status: &StoreStatus, health: &Health, context: &Context) -> String {
    let alarming = |count: u64| {
        if count > 0 {
            context.bad(&count.to_string())
        } else {
            count.to_string()
        }
    };
    let mut counts = table(&[]);
    let oldest = status.oldest_age.map_or_else(|| "-".to_owned(), span);
    for (name, value, meaning) in [
        (
            "pending",
            status.pending.to_string(),
            "committed, waiting for their first attempt",
        ),
        ("failed", alarming(status.failed), "waiting for a retry"),
        (
            "held",
            status.held.to_string(),
            "waiting behind a failing or blocking event of their key",
        ),
        ("delayed", status.delayed.to_string(), "not due yet"),
        ("dead", alarming(status.dead), "given up, with a reason"),
        (
            "oldest",
            oldest,
            "age of the oldest event that could have been sent",
        ),
    ] {
        counts.add_row([name.to_owned(), value, context.quiet(meaning)]);
    }
    let mut text = counts.trim_fmt();
    text.push_str("\n\n");
    if !status.pressure.is_empty() {
        text.push_str(&classes(&status.pressure, context));
        text.push_str("\n\n");
    }
    // That no relay is running is said below.
    let parts = health.parts().into_iter();
    for (part, PartHealth { problems, .. }) in parts.filter(|(part, _)| *part != Part::Publisher) {
        for problem in problems {
            let _ = writeln!(text, "{}", context.bad(&format!("{part}: {problem}")));
        }
    }
    if !health.is_healthy() {
        text.push('\n');
    }
    if status.relays.is_empty() {
        text.push_str(&context.bad("No relay is running: start one with `pillarbox run`."));
        return text;
    }
    let mut relays = table(&["RELAY", "LANES", "LAST SEEN", "ID"]);
    for relay in &status.relays {
        relays.add_row([
            relay.name.clone(),
            relay.lanes.to_string(),
            format!("{} ago", span(relay.last_seen)),
            relay.id.to_string(),
        ]);
    }
    text.push_str(&relays.trim_fmt());
    for relay in status.relays.iter().filter(|relay| !relay.troubles.is_empty()) {
        let _ = write!(text, "\n\n{} reports:", relay.name);
        for trouble in &relay.troubles {
            let _ = write!(text, "\n  {}", context.bad(&trouble.to_string()));
        }
    }
    text
}

/// Whether producers are slowed or refused.
fn classes(pressure: &[Standing], context: &Context) -> String {
    let mut classes = table(&["CLASS", "PENDING", "SOFT", "HARD", "OLDEST", "PRODUCERS"]);
    for class in pressure {
        let limit = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
        let seconds = span(class.retry_after.unwrap_or_default());
        let millis = class.delay.unwrap_or_default().as_millis();
        let producers = match class.producers {
            Level::Free => "free".to_owned(),
            Level::Slowed => context.bad(&format!("slowed by {millis} ms")),
            Level::Refused => context.bad(&format!("refused, may try again in {seconds}")),
        };
        classes.add_row([
            class.class.clone(),
            class.pending.to_string(),
            limit(class.soft),
            limit(class.hard),
            class.oldest_age.map_or_else(|| "-".to_owned(), span),
            producers,
        ]);
    }
    classes.trim_fmt()
}
