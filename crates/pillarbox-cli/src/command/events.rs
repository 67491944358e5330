//! `pillarbox events list|show|counts`

mod counts;
mod filter;
mod list;
mod show;

use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::Subcommand;
use pillarbox_relay::{connect::OpenStore, event_log::EventLog};

use crate::output::{Answer, Context, open_store};

/// Show what became of events: list them, count them, or follow the life of one
///
/// The lists come from the event log. It records the events of routes with `event_log: true` (or
/// all, with `outbox.event_log.enabled`). The life of one event is known without it.
///
///   pillarbox events list --aggregate-id order-17       # the latest first
///   pillarbox events list --status dead --since 1d
///   pillarbox events show 0197a1b2-11aa-7000-8000-0123456789ab
///   pillarbox events counts --since 7d
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(Box<list::Args>),
    Show(show::Args),
    Counts(Box<counts::Args>),
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    match args.command {
        Command::List(args) => list::run(*args, context).await,
        Command::Show(args) => show::run(args, context).await,
        Command::Counts(args) => counts::run(*args, context).await,
    }
}

/// The database of the configuration, and its log.
fn open(context: &Context) -> Result<(OpenStore, Arc<dyn EventLog>)> {
    let open = open_store(&context.settings()?)?;
    let log = open
        .event_log
        .clone()
        .ok_or_else(|| anyhow!("{} has no event log", open.kind))?;
    Ok((open, log))
}

/// What to say if the log has no entries.
fn nothing(context: &Context) -> Result<()> {
    let recorded = context.settings()?.event_log.is_some();
    context.say(match recorded {
        true => "No entry of the event log matches.",
        false => "No entry of the event log matches. This configuration records none: set `outbox.event_log.enabled` to true, or `event_log` of a route.",
    });
    Ok(())
}
