//! `pillarbox events counts`

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::filter::Filter;
use crate::output::{Answer, Context, store_error, table};

/// Count events by hour, type and outcome
///
/// Of the last 24 hours, unless --since is given.
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
    let counts = log.counts(&filter).await.map_err(store_error)?;
    if context.json {
        context.print_json(&json!({ "counts": counts }))?;
        return Ok(Answer::Yes);
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
