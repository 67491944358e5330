//! `pillarbox catalog`

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use pillarbox_relay::catalog::{Catalog, Entry, LAST_MAX};

use super::run::checks;
use crate::output::{Answer, Context, open_store, span, store_error, table};

/// List the kinds of events: their targets, their schemas, how many, and when the last one was seen
///
/// Reads the latest events of the outbox, delivered or not, and says how many it read. Targets and
/// schemas are those of the current configuration. An example shows the structure and the keys of
/// the latest payload; its values are masked ("string", 0, true).
///
///   pillarbox catalog
///   pillarbox catalog --last 1000000 --example
///   pillarbox catalog --json | jq -r '.kinds[] | select(.schema == null) | .event_type'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// How many of the latest events to read
    #[arg(long, value_name = "COUNT", default_value_t = LAST, value_parser = clap::value_parser!(u32).range(1..=LAST_MAX as i64))]
    last: u32,
    /// Show an example of the latest payload of each kind; --json always includes it
    #[arg(long)]
    example: bool,
}

/// The default of `--last`.
pub(crate) const LAST: u32 = 100_000;

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    let open = open_store(&settings)?;
    let checks = checks::open(&settings, &open)?;
    let now = Timestamp::now();
    let catalog = Catalog::of(
        &*open.admin,
        args.last as usize,
        &settings.routes,
        checks.as_deref(),
        now,
    )
    .await
    .map_err(store_error)?;
    if context.json {
        context.print_json(&catalog)?;
        return Ok(Answer::Yes);
    }
    if catalog.kinds.is_empty() {
        context.say("There are no events yet.");
        return Ok(Answer::Yes);
    }
    let mut rows = table(&[
        "TYPE",
        "VERSION",
        "TOPIC",
        "GOES TO",
        "SCHEMA",
        "COUNT",
        "RATE",
        "LAST SEEN",
    ]);
    for entry in &catalog.kinds {
        rows.add_row(row(entry, now, context));
    }
    context.print(&rows.trim_fmt())?;
    if args.example {
        for entry in &catalog.kinds {
            print_example(entry, context)?;
        }
    }
    context.say(&extent(&catalog, now));
    Ok(Answer::Yes)
}

fn row(entry: &Entry, now: Timestamp, context: &Context) -> [String; 8] {
    let goes_to = match (&entry.sink, &entry.stream) {
        (None, _) => context.bad("no route"),
        (Some(sink), None) => sink.to_string(),
        (Some(sink), Some(stream)) => format!("{sink}/{}", shown(stream)),
    };
    let last_seen = Duration::try_from(now.duration_since(entry.last_seen)).unwrap_or_default();
    [
        context.strong(&shown(&entry.event_type)),
        entry.schema_version.to_string(),
        shown(&entry.topic),
        goes_to,
        entry.schema.as_deref().map_or_else(|| "none".to_owned(), shown),
        entry.count.to_string(),
        rate(entry.per_second),
        format!("{} ago", span(last_seen)),
    ]
}

fn print_example(entry: &Entry, context: &Context) -> Result<()> {
    let (event_type, topic) = (shown(&entry.event_type), shown(&entry.topic));
    context.print(&format!("\n{event_type} {}, {topic}:", entry.schema_version))?;
    match &entry.example {
        Some(example) => context.print(&serde_json::to_string_pretty(example)?),
        None => context.print("the payload is too large, or not JSON"),
    }
}

/// How much it read.
fn extent(catalog: &Catalog, now: Timestamp) -> String {
    let age = catalog.since.map(|since| now.duration_since(since));
    let age = age
        .and_then(|age| Duration::try_from(age).ok())
        .unwrap_or_default();
    let more = if catalog.more {
        " There are more kinds than these."
    } else {
        ""
    };
    format!(
        "Seen among the latest {} events, of the last {}.{more}",
        catalog.looked_at,
        span(age)
    )
}

/// In the largest unit that is at least one.
fn rate(per_second: f64) -> String {
    [(1.0, "s"), (60.0, "min"), (3_600.0, "h")]
        .into_iter()
        .map(|(seconds, unit)| (per_second * seconds, unit))
        .find(|(rate, _)| *rate >= 1.0)
        .map_or_else(
            || format!("{:.2}/d", per_second * 86_400.0),
            |(rate, unit)| format!("{rate:.1}/{unit}"),
        )
}

/// Text from others must not control the terminal.
fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn a_rate_is_shown_in_a_suitable_unit() {
        let told = [2_000.0, 1.0, 0.5, 0.001, 0.00005].map(rate);
        assert_eq!(told, ["2000.0/s", "1.0/s", "30.0/min", "3.6/h", "4.32/d"]);
    }
}
