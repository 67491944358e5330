//! `pillarbox dead replay` and `pillarbox dead discard`

use std::io::{self, IsTerminal, Write};

use anyhow::{Result, bail};
use pillarbox::EventId;
use pillarbox_relay::dead::{Actor, DeadFilter, DeadLetters, ReplayAs, Touched, discard_all, replay_all};
use serde_json::json;

use super::filter::Filter;
use crate::output::{Answer, Context, open_store, progress, store_error, tell};

/// Try dead events again, after their cause is fixed
///
/// They are tried at once with no attempts counted, in order per key. They keep their ids, so a
/// consumer that has already processed one skips it. The command shows first what it would change;
/// on a terminal it asks for confirmation.
///
///   pillarbox dead replay 0197a1b2-11aa-7000-8000-0123456789ab
///   pillarbox dead replay --fingerprint 1f0c9a44be21 --dry-run
///   pillarbox dead replay --topic 'shop.order.>' --why "the stream was full"
///
/// To do this on a schedule, see `outbox.dlq.reprocess` and `pillarbox dead reprocess`.
///
/// Exits 1 if nothing matches.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    choice: Choice,
    /// Send copies with new ids, behind all other events of their keys, with the old id in the
    /// header `replay-of`: for consumers that have processed the old one and must process it again
    #[arg(long, verbatim_doc_comment)]
    as_new: bool,
    /// The reason, for later readers
    #[arg(long)]
    why: Option<String>,
}

/// Discard dead events: they stay dead and are no longer listed
///
/// The letters and the reason are kept until they expire. The command shows first what it would
/// change; on a terminal it asks for confirmation.
///
///   pillarbox dead discard --topic test.order --why "load test of Monday"
///
/// Exits 1 if nothing matches.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct DiscardArgs {
    #[command(flatten)]
    choice: Choice,
    /// The reason, for later readers
    #[arg(long)]
    why: String,
}

#[derive(clap::Args)]
struct Choice {
    /// Event ids
    ids: Vec<EventId>,
    #[command(flatten)]
    filter: Filter,
    /// All open dead letters
    #[arg(long)]
    all: bool,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Who acts, for later readers [default: this user]
    #[arg(long, value_name = "NAME", env = "PILLARBOX_ACTOR")]
    by: Option<String>,
}

/// The action.
enum Deed {
    Replay(ReplayAs),
    Discard,
}

pub(super) async fn replay(args: ReplayArgs, context: &Context) -> Result<Answer> {
    let send = if args.as_new {
        ReplayAs::New
    } else {
        ReplayAs::Same
    };
    act(args.choice, Deed::Replay(send), args.why, context).await
}

pub(super) async fn discard(args: DiscardArgs, context: &Context) -> Result<Answer> {
    if args.why.trim().is_empty() {
        bail!("--why is empty: give a short reason why these events are not needed");
    }
    act(args.choice, Deed::Discard, Some(args.why), context).await
}

async fn act(choice: Choice, deed: Deed, why: Option<String>, context: &Context) -> Result<Answer> {
    let filter = choice.filter.with_ids(choice.ids);
    if !filter.restricts() && !choice.all {
        bail!("select events: ids, --fingerprint, --topic, --event-type, --key, --reason, --since, or --all");
    }
    let settings = context.settings()?;
    if matches!(deed, Deed::Replay(_)) && !settings.dead_letters.replay_allowed {
        bail!(
            "the configuration forbids it: set `outbox.dlq.enable_manual_replay` to true to replay dead letters"
        );
    }
    let letters = open_store(&settings)?.dead_letters;
    let touched = letters.touched(&filter).await.map_err(store_error)?;
    context.say(&shown(&touched, &deed));
    if touched.count == 0 || choice.dry_run {
        return finish(&touched, 0, choice.dry_run, context);
    }
    let bulk = touched.count > 1;
    if bulk && !choice.yes && !context.json && !confirmed(&deed, touched.count)? {
        context.say("Nothing was changed.");
        return Ok(Answer::No);
    }
    let actor = Actor {
        by: choice.by.unwrap_or_else(this_user),
        why,
    };
    let done = perform(&*letters, &filter, &deed, &actor, touched.count, context).await?;
    if matches!(deed, Deed::Replay(_)) {
        context
            .say("A running relay tries them within a second or two: `pillarbox status` shows the result.");
    }
    finish(&touched, done, false, context)
}

async fn perform(
    letters: &dyn DeadLetters,
    filter: &DeadFilter,
    deed: &Deed,
    actor: &Actor,
    total: u64,
    context: &Context,
) -> Result<usize> {
    let bar = progress(context, deed.doing(), total);
    let mut told = |done: usize| bar.set_position(done as u64);
    let done = match deed {
        Deed::Replay(send) => replay_all(letters, filter, *send, actor, &mut told).await?,
        Deed::Discard => discard_all(letters, filter, actor, &mut told).await?,
    };
    bar.finish_and_clear();
    context.say(&format!("{done} {}.", deed.done()));
    Ok(done)
}

fn finish(touched: &Touched, done: usize, dry_run: bool, context: &Context) -> Result<Answer> {
    if context.json {
        context.print_json(&json!({ "dry_run": dry_run, "touched": touched, "done": done }))?;
    }
    Ok(if touched.count == 0 {
        Answer::No
    } else {
        Answer::Yes
    })
}

fn shown(touched: &Touched, deed: &Deed) -> String {
    if touched.count == 0 {
        return "No open dead letter matches.".into();
    }
    let mut text = format!(
        "To be {}: {} of {} keys",
        deed.done(),
        plural(touched.count, "event"),
        touched.keys
    );
    for (topic, count) in touched.topics.iter().take(10) {
        text.push_str(&format!("\n  {count:>8}  {topic}"));
    }
    if touched.topics.len() > 10 {
        text.push_str("\n           … and more topics");
    }
    text
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Deed {
    fn doing(&self) -> &'static str {
        match self {
            Self::Replay(_) => "replaying",
            Self::Discard => "discarding",
        }
    }

    fn done(&self) -> &'static str {
        match self {
            Self::Replay(_) => "replayed",
            Self::Discard => "discarded",
        }
    }
}

/// Asks on a terminal; without one nobody could answer.
fn confirmed(deed: &Deed, count: u64) -> Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    let _ = write!(
        io::stderr(),
        "{} will be {}. Continue? [y/N] ",
        plural(count, "event"),
        deed.done()
    );
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if answer.is_empty() {
        tell("");
    }
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(super) fn this_user() -> String {
    ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
        .unwrap_or_else(|| "unknown".into())
}
