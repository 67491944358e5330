//! `pillarbox dead list|show|replay|discard|reprocess|test-notice`

mod act;
mod filter;
mod list;
mod reprocess;
mod show;
mod test_notice;

use anyhow::Result;
use clap::Subcommand;

use crate::output::{Answer, Context};

/// Inspect dead letters, send them again, or discard them
///
/// A dead letter is an event that used up its attempts or that can never be delivered in its
/// present form. It keeps the event, the reason and its latest failures. Events with the same
/// failure form a group, identified by a fingerprint:
///
///   pillarbox dead list                                  # the groups
///   pillarbox dead list --letters --topic 'shop.order.>' # the letters, the latest first
///   pillarbox dead show 0197a1b2-11aa-7000-8000-0123456789ab
///   pillarbox dead replay --fingerprint 1f0c9a44be21     # after its cause is fixed
///   pillarbox dead discard --topic test.order --why "load test of Monday"
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::Args),
    Show(show::Args),
    Replay(act::ReplayArgs),
    Discard(act::DiscardArgs),
    Reprocess(reprocess::Args),
    TestNotice(test_notice::Args),
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    match args.command {
        Command::List(args) => list::run(args, context).await,
        Command::Show(args) => show::run(args, context).await,
        Command::Replay(args) => act::replay(args, context).await,
        Command::Discard(args) => act::discard(args, context).await,
        Command::Reprocess(args) => reprocess::run(args, context).await,
        Command::TestNotice(args) => test_notice::run(args, context).await,
    }
}
