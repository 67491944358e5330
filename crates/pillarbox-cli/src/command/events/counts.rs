//! `pillarbox events counts`

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use pillarbox_relay::event_log::COUNTED_MAX;
use serde_json::json;

use super::filter::Filter;
use crate::output::{Answer, Context, store_error, table};

/// Count events by hour, type and outcome
///
/// Of the last 24 hours, unless --since is given. If there are more than 5 million entries, the
/// latest are counted, and the answer says from which time on it is complete.
///
///   pillarbox events counts
///   pillarbox events counts --since 7d --topic 'shop.>'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    filter: Filter,
}

pub(super) async fn run(args: Args, context: &Context) -> Result<Answer> {
    let (_, log) = super::open(context)?;
    let mut filter = args.filter.read()?;
    filter
        .since
        .get_or_insert_with(|| Timestamp::now() - SignedDuration::from_hours(24));
    let counted = log.counts(&filter, COUNTED_MAX).await.map_err(store_error)?;
    let (counts, complete_since) = (counted.counts, counted.complete_since);
    if context.json {
        let since = complete_since.or(filter.since);
        let partial = complete_since.is_some();
        context.print_json(&json!({ "counts": counts, "since": since, "partial": partial }))?;
        return Ok(Answer::Yes);
    }
    if let Some(since) = complete_since {
        context.say(&format!(
            "There are more entries than can be counted at once: the counts are complete from {since} on."
        ));
    }
    if counts.is_empty() {
        super::nothing(context)?;
        return Ok(Answer::Yes);
    }
    let mut rows = table(&["HOUR", "TYPE", "STATUS", "COUNT"]);
    for count in &counts {
        rows.add_row([
            count.hour.to_string(),
            count.event_type.clone(),
            count.status.clone(),
            count.count.to_string(),
        ]);
    }
    context.print(&rows.trim_fmt())?;
    Ok(Answer::Yes)
}
