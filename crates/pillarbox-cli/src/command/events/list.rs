//! `pillarbox events list`

use anyhow::Result;
use pillarbox_relay::event_log::{LogEntry, LogOutcome, Position};
use serde_json::json;

use super::filter::Filter;
use crate::output::{Answer, Context, store_error, table};

/// List events that were delivered or died, the latest first
///
///   pillarbox events list --topic 'shop.>' --since 1h
///   pillarbox events list --project p-1 --user u-1 -n 200
///   pillarbox --json events list --aggregate-id order-17 | jq '.events[].payload'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only those below this position, to continue a list
    #[arg(long, value_name = "POSITION")]
    before: Option<Position>,
    #[command(flatten)]
    filter: Filter,
}

pub(super) async fn run(args: Args, context: &Context) -> Result<Answer> {
    let (_, log) = super::open(context)?;
    let filter = args.filter.read()?;
    let limit = args.limit as usize;
    let (mut entries, mut next) = (Vec::new(), args.before);
    // One call searches a bounded part of the log.
    loop {
        let list = log
            .list(&filter, next, limit - entries.len())
            .await
            .map_err(store_error)?;
        entries.extend(list.entries);
        next = list.next;
        if entries.len() >= limit || next.is_none() {
            break;
        }
    }
    if context.json {
        context.print_json(&json!({ "events": entries, "next": next }))?;
        return Ok(Answer::Yes);
    }
    if entries.is_empty() {
        super::nothing(context)?;
        return Ok(Answer::Yes);
    }
    print(&entries, context)?;
    if let Some(next) = next {
        context.say(&format!("There may be more: continue with --before {next}."));
    }
    Ok(Answer::Yes)
}

fn print(entries: &[LogEntry], context: &Context) -> Result<()> {
    let mut rows = table(&[
        "POSITION",
        "AT",
        "STATUS",
        "TOPIC",
        "TYPE",
        "AGGREGATE",
        "ID",
        "WHY",
    ]);
    for entry in entries {
        let event = &entry.event;
        let why = match &entry.outcome {
            LogOutcome::Published => String::new(),
            LogOutcome::Dead { error, .. } => error.lines().next().unwrap_or_default().to_owned(),
        };
        rows.add_row([
            entry.position.to_string(),
            format!("{:.3}", entry.at),
            entry.outcome.status().to_owned(),
            event.topic.clone(),
            event.event_type.clone(),
            format!("{}/{}", event.aggregate_type, event.aggregate_id),
            event.id.to_string(),
            why,
        ]);
    }
    context.print(&rows.trim_fmt())
}
