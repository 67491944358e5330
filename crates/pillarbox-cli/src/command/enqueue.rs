//! `pillarbox enqueue`

#[cfg(test)]
mod fuzz;
pub(super) mod ndjson;

use std::{io::Read, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use jiff::Timestamp;
use pillarbox::{EnqueueError, Enqueued, Event, EventId, Limits};
use pillarbox_relay::store::admin::AdminEnqueueError;
use serde_json::json;

use crate::output::{Answer, Context, open_store, store_error};

/// Write events into the outbox, all in one transaction
///
/// One event by flags:
///   pillarbox enqueue --topic shop.order.placed --type OrderPlaced \
///     --aggregate-type order --aggregate-id o-1 --payload '{"total": 990}'
///
/// Many as NDJSON, one JSON object per line with the same names (event_type, aggregate_type, …):
///   pillarbox enqueue --ndjson < events.ndjson
///
/// Prints `new` or `duplicate` and the id for each event. An event whose id already exists is not
/// written again, so running the same file twice is safe. If one event is refused, none is written,
/// and the error gives its line. If too many events are pending (see `outbox.backpressure`), none
/// is written either, and it exits 1.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Read events as NDJSON from stdin (a lone `-` means the same)
    #[arg(long, conflicts_with_all = ["topic", "event_type", "aggregate_type", "aggregate_id", "payload"])]
    ndjson: bool,
    #[arg(value_name = "-", value_parser = ["-"], hide = true)]
    stdin: Option<String>,
    /// The topic, a NATS subject such as shop.order.placed
    #[arg(long)]
    topic: Option<String>,
    /// The event type, such as OrderPlaced
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The aggregate's type, such as order
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
    /// The aggregate's id
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// The aggregate's version after the change
    #[arg(long, value_name = "N")]
    aggregate_version: Option<i64>,
    /// The key; events of one key are delivered in order [default: the aggregate's id]
    #[arg(long)]
    key: Option<String>,
    /// JSON, or @file, or - for stdin
    #[arg(long, value_name = "JSON", default_value = "null", allow_hyphen_values = true)]
    payload: String,
    /// A header; can be given more than once
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Do not deliver it before this time has passed: 500ms, 30s, 10m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = delay)]
    delay: Option<Duration>,
    /// The event's id, any text [default: a new UUID]
    #[arg(long, value_name = "ID")]
    id: Option<EventId>,
    /// The stream at the sink [default: the routes choose]
    #[arg(long)]
    stream: Option<String>,
    /// The version of the payload's schema
    #[arg(long, value_name = "N", default_value_t = 1)]
    schema_version: i32,
    /// The project it belongs to
    #[arg(long, value_name = "ID")]
    project_id: Option<String>,
    /// The user it belongs to
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// The number of failures after which it is dead [default: the retry policy's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
}

/// Events, and the lines they came from.
struct Given {
    events: Vec<Event>,
    /// The line of each event, from 1; empty for an event from flags.
    lines: Vec<usize>,
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    let limits = settings.limits.clone();
    let given = if args.ndjson || args.stdin.is_some() {
        ndjson::read(std::io::stdin().lock(), &limits)?
    } else {
        Given {
            events: vec![one(args, &limits)?],
            lines: Vec::new(),
        }
    };
    let open = open_store(&settings)?;
    let results = match open.admin.enqueue(&limits, &given.events).await {
        Ok(results) => results,
        Err(AdminEnqueueError::Refused(busy @ EnqueueError::Busy { .. })) => return refused(&busy, context),
        Err(error) => return Err(explain(error, &given.lines)),
    };
    report(&given.events, &results, context)?;
    Ok(Answer::Yes)
}

fn one(args: Args, limits: &Limits) -> Result<Event> {
    let needed = |value: Option<String>, flag: &str| {
        value.ok_or_else(|| {
            anyhow!("{flag} is missing. An event needs --topic, --type, --aggregate-type and --aggregate-id; or use --ndjson")
        })
    };
    let mut event = Event::to(needed(args.topic, "--topic")?)
        .event_type(needed(args.event_type, "--type")?)
        .aggregate(
            needed(args.aggregate_type, "--aggregate-type")?,
            needed(args.aggregate_id, "--aggregate-id")?,
        )
        .payload(payload(&args.payload, limits.payload_bytes_max)?)
        .schema_version(args.schema_version);
    event.retry.max_attempts = args.max_attempts;
    event.id = args.id.unwrap_or(event.id);
    event.aggregate_version = args.aggregate_version;
    event.partition_key = args.key;
    event.stream = args.stream;
    event.project_id = args.project_id;
    event.user_id = args.user_id;
    for header in &args.headers {
        let (name, value) = header
            .split_once('=')
            .with_context(|| format!("--header {header}: write it as name=value"))?;
        event = event.header(name, value);
    }
    if let Some(delay) = args.delay {
        let at = Timestamp::now()
            .checked_add(delay)
            .context("--delay is too long")?;
        event = event.available_at(at);
    }
    Ok(event)
}

fn payload(text: &str, bytes_max: usize) -> Result<Vec<u8>> {
    let read = |source: &mut dyn Read, name: &str| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        source
            .take(bytes_max as u64 + 1)
            .read_to_end(&mut bytes)
            .with_context(|| format!("can't read the payload from {name}"))?;
        Ok(bytes)
    };
    if text == "-" {
        return read(&mut std::io::stdin().lock(), "stdin");
    }
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some(path) => {
            let path = PathBuf::from(path);
            let mut file = std::fs::File::open(&path)
                .with_context(|| format!("can't open the payload {}", path.display()))?;
            read(&mut file, &path.display().to_string())
        }
    }
}

/// The outbox is full: a negative answer (exit 1), not an error.
fn refused(busy: &EnqueueError, context: &Context) -> Result<Answer> {
    if let EnqueueError::Busy {
        class,
        pending,
        limit,
        retry_after,
        ..
    } = busy
        && context.json
    {
        let retry_after = retry_after.as_secs_f64();
        context.print_json(&json!({
            "busy": { "class": class, "pending": pending, "limit": limit, "retry_after_seconds": retry_after },
        }))?;
    }
    context.say(&format!("{busy}. Nothing was written."));
    Ok(Answer::No)
}

/// Adds the number of the refused line, if there are lines.
fn explain(error: AdminEnqueueError, lines: &[usize]) -> anyhow::Error {
    match error {
        AdminEnqueueError::Refused(EnqueueError::Refused { index, problem }) => match lines.get(index) {
            Some(line) => anyhow!("line {line}: {problem}. Nothing was written"),
            None => anyhow!("{problem}. Nothing was written"),
        },
        AdminEnqueueError::Store(error) => store_error(error),
        AdminEnqueueError::Refused(error) => error.into(),
    }
}

fn report(events: &[Event], results: &[Enqueued], context: &Context) -> Result<()> {
    let word = |result: &Enqueued| match result {
        Enqueued::New => "new",
        Enqueued::Duplicate => "duplicate",
    };
    let new = results.iter().filter(|result| **result == Enqueued::New).count();
    let duplicate = results.len() - new;
    if context.json {
        let list: Vec<_> = events
            .iter()
            .zip(results)
            .map(|(event, result)| json!({ "id": event.id, "result": word(result) }))
            .collect();
        return context.print_json(&json!({ "new": new, "duplicate": duplicate, "events": list }));
    }
    let mut text = String::new();
    for (event, result) in events.iter().zip(results) {
        text.push_str(&format!("{} {}\n", word(result), event.id));
    }
    if !text.is_empty() {
        context.print(text.trim_end())?;
    }
    context.say(&format!(
        "{new} new, {duplicate} duplicate, committed in one transaction."
    ));
    Ok(())
}

fn delay(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let milliseconds: u64 = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        other => bail!("`{other}` is not a unit; use ms, s, m, h or d"),
    };
    let count: u64 = digits
        .parse()
        .with_context(|| format!("`{text}` is not a duration; write for example 30s or 10m"))?;
    Ok(Duration::from_millis(
        count.checked_mul(milliseconds).context("that is too long")?,
    ))
}
