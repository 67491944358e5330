//! `pillarbox events show`

use anyhow::Result;
use pillarbox::EventId;
use pillarbox_relay::event_log::life::{Step, WholeLife, whole_life};

use crate::{
    http::history::EventLife,
    output::{Answer, Context, store_error, table, tell},
};

/// Show the life of one event: committed, attempts, delivered, dead, replayed
///
///   pillarbox events show 0197a1b2-11aa-7000-8000-0123456789ab
///
/// Exits 1 if there is no event with this id.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The event's id
    id: EventId,
}

pub(super) async fn run(args: Args, context: &Context) -> Result<Answer> {
    let (open, log) = super::open(context)?;
    let life = whole_life(&*log, &*open.dead_letters, &args.id)
        .await
        .map_err(store_error)?;
    let Some(life) = life else {
        tell(&format!(
            "There is no event {}: it was never committed, or its row and its entries were deleted.",
            args.id
        ));
        return Ok(Answer::No);
    };
    if context.json {
        context.print_json(&EventLife::from(life))?;
    } else {
        print(&life, context)?;
    }
    Ok(Answer::Yes)
}

fn print(life: &WholeLife, context: &Context) -> Result<()> {
    let mut fields = table(&[]);
    let mut field = |name: &str, value: String| {
        fields.add_row([name.to_owned(), value]);
    };
    field("id", life.id.to_string());
    field("status", life.status.clone());
    if let Some(event) = &life.event {
        field("topic", event.topic.clone());
        field("type", event.event_type.clone());
        field(
            "aggregate",
            format!("{}/{}", event.aggregate_type, event.aggregate_id),
        );
        field("key", event.key().to_owned());
        for (name, id) in [("project", &event.project_id), ("user", &event.user_id)] {
            if let Some(id) = id {
                field(name, id.clone());
            }
        }
    }
    field("failed attempts", life.attempts.to_string());
    if let Some(due) = life.due_at {
        field("next attempt", due.to_string());
    }
    if !life.in_outbox {
        field(
            "in the outbox",
            "no longer; this is what the event log has".into(),
        );
    }
    context.print(&fields.trim_fmt())?;
    context.print(&context.strong("\nwhat happened"))?;
    let mut rows = table(&[]);
    for step in &life.steps {
        rows.add_row([format!("{:.3}", step.at), step.what.clone(), details(step)]);
    }
    context.print(&rows.trim_fmt())?;
    match &life.event {
        Some(event) => {
            context.print(&context.strong("\npayload"))?;
            context.print(&String::from_utf8_lossy(&event.payload))
        }
        None => context.print("\nThe event itself can't be read."),
    }
}

/// The rest of a step, on one line.
fn details(step: &Step) -> String {
    let named = [
        ("position", step.position.map(|position| position.to_string())),
        ("sink", step.sink.clone()),
        ("relay", step.relay.clone().filter(|relay| !relay.is_empty())),
        ("by", step.by.clone()),
        ("as", step.new_id.clone().map(|id| id.to_string())),
    ];
    let named = named
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let texts = [&step.reason, &step.why, &step.error];
    let texts = texts.into_iter().flatten().cloned();
    named.chain(texts).collect::<Vec<_>>().join(", ")
}
