//! `pillarbox dead show`

use anyhow::Result;
use pillarbox::EventId;
use pillarbox_relay::dead::DeadDetails;

use crate::{
    http::dead::WholeLetter,
    output::{Answer, Context, open_store, store_error, table, tell},
};

/// Show one dead letter: the event, its failures, and what was done about it
///
///   pillarbox dead show 0197a1b2-11aa-7000-8000-0123456789ab
///
/// Exits 1 if there is none for this id.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The event's id
    id: EventId,
}

pub(super) async fn run(args: Args, context: &Context) -> Result<Answer> {
    let open = open_store(&context.settings()?)?;
    let found = open.dead_letters.show(&args.id).await.map_err(store_error)?;
    let Some(details) = found else {
        tell(&format!("There is no dead letter for {}.", args.id));
        return Ok(Answer::No);
    };
    if context.json {
        context.print_json(&WholeLetter::from(details))?;
    } else {
        print(&details, context)?;
    }
    Ok(Answer::Yes)
}

fn print(details: &DeadDetails, context: &Context) -> Result<()> {
    let letter = &details.letter;
    let waits = match letter.blocks_key {
        true => "; later events of its key wait until it is replayed or discarded",
        false => "",
    };
    let mut fields = table(&[]);
    for (name, value) in [
        ("id", letter.id.to_string()),
        ("topic", letter.topic.clone()),
        ("type", letter.event_type.clone()),
        ("key", letter.key.clone()),
        ("state", format!("{}{waits}", letter.state.as_str())),
        ("died", letter.died_at.to_string()),
        ("reason", context.bad(letter.reason.as_str())),
        ("error", letter.error.clone()),
        ("attempts", letter.attempts.to_string()),
        ("sink", letter.sink.clone().unwrap_or_else(|| "-".into())),
        ("relay", letter.relay.clone()),
        ("fingerprint", letter.fingerprint.clone()),
    ] {
        fields.add_row([context.quiet(name), value]);
    }
    context.print(&fields.trim_fmt())?;
    if !details.failures.is_empty() {
        context.print(&context.strong("\nfailures, oldest first"))?;
        let mut rows = table(&[]);
        for failure in &details.failures {
            let sink = failure.sink.clone().unwrap_or_else(|| "-".into());
            rows.add_row([
                failure.at.to_string(),
                sink,
                failure.relay.clone(),
                failure.error.clone(),
            ]);
        }
        context.print(&rows.trim_fmt())?;
    }
    if !details.recoveries.is_empty() {
        context.print(&context.strong("\ndone about it"))?;
        let mut rows = table(&[]);
        for done in &details.recoveries {
            let link = done.new_id.clone().map_or(String::new(), |id| format!("as {id}"));
            let why = done.why.clone().unwrap_or_default();
            let action = format!("{:?}", done.action).to_lowercase();
            rows.add_row([done.at.to_string(), action, format!("by {}", done.by), link, why]);
        }
        context.print(&rows.trim_fmt())?;
    }
    match &details.event {
        Some(event) => {
            if !event.headers.is_empty() {
                context.print(&context.strong("\nheaders"))?;
                for (name, value) in &event.headers {
                    context.print(&format!("{name}: {value}"))?;
                }
            }
            context.print(&context.strong("\npayload"))?;
            context.print(&String::from_utf8_lossy(&event.payload))
        }
        None => context.print("\nThe event itself can't be read."),
    }
}
