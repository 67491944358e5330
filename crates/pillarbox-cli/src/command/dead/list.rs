//! `pillarbox dead list`

use anyhow::Result;
use jiff::Timestamp;
use pillarbox_relay::dead::{DeadGroup, DeadLetter, DeadState};
use serde_json::json;

use super::filter::Filter;
use crate::output::{Answer, Context, open_store, span, store_error, table};

/// List dead letters: grouped by cause, or one by one
///
///   pillarbox dead list
///   pillarbox dead list --letters --key order-17
///   pillarbox --json dead list | jq '.groups[].fingerprint'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// List single letters, the latest first
    #[arg(long)]
    letters: bool,
    /// With --letters: also replayed and discarded ones
    #[arg(long, requires = "letters")]
    done: bool,
    /// With --letters: how many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// With --letters: only those below this seq, to continue a list
    #[arg(long, value_name = "SEQ", requires = "letters")]
    before: Option<i64>,
    #[command(flatten)]
    filter: Filter,
}

pub(super) async fn run(args: Args, context: &Context) -> Result<Answer> {
    let open = open_store(&context.settings()?)?;
    let filter = args.filter.with_ids(Vec::new());
    if !args.letters {
        let mut groups = open.dead_letters.groups(&filter).await.map_err(store_error)?;
        let told = open.notices().add_told(&mut groups).await;
        told.map_err(store_error)?;
        if context.json {
            context.print_json(&json!({ "groups": groups }))?;
        } else {
            print_groups(&groups, context)?;
        }
        return Ok(Answer::Yes);
    }
    let state = (!args.done).then_some(DeadState::Open);
    let letters = open
        .dead_letters
        .list(&filter, state, args.before, args.limit as usize)
        .await
        .map_err(store_error)?;
    let next = (letters.len() == args.limit as usize)
        .then(|| letters.last().map(|last| last.seq))
        .flatten();
    if context.json {
        context.print_json(&json!({ "letters": letters, "next": next }))?;
    } else {
        print_letters(&letters, context)?;
        if let Some(next) = next {
            context.say(&format!("There may be more: continue with --before {next}."));
        }
    }
    Ok(Answer::Yes)
}

fn print_groups(groups: &[DeadGroup], context: &Context) -> Result<()> {
    if groups.is_empty() {
        context.say("There are no dead letters.");
        return Ok(());
    }
    let mut rows = table(&[
        "FINGERPRINT",
        "COUNT",
        "KEYS",
        "TOPICS",
        "LAST",
        "TOLD",
        "REASON",
        "ERROR",
    ]);
    for group in groups {
        rows.add_row([
            group.fingerprint.clone(),
            context.bad(&group.count.to_string()),
            group.keys.to_string(),
            group.topics.to_string(),
            ago(group.last_died_at),
            group.told_at.map_or_else(|| "-".into(), ago),
            group.reason.as_str().to_owned(),
            first_line(&group.error),
        ]);
    }
    context.print(&rows.trim_fmt())?;
    context.say("Fix the cause, then: pillarbox dead replay --fingerprint PRINT");
    Ok(())
}

fn print_letters(letters: &[DeadLetter], context: &Context) -> Result<()> {
    if letters.is_empty() {
        context.say("No dead letter matches.");
        return Ok(());
    }
    let mut rows = table(&["ID", "DIED", "TOPIC", "KEY", "REASON", "STATE", "ERROR"]);
    for letter in letters {
        rows.add_row([
            letter.id.to_string(),
            ago(letter.died_at),
            letter.topic.clone(),
            letter.key.clone(),
            letter.reason.as_str().to_owned(),
            state(letter, context),
            first_line(&letter.error),
        ]);
    }
    context.print(&rows.trim_fmt())
}

/// The state of a letter, and whether its key waits for it.
fn state(letter: &DeadLetter, context: &Context) -> String {
    match letter.blocks_key {
        true => context.bad("open, blocks its key"),
        false => letter.state.as_str().to_owned(),
    }
}

fn ago(at: Timestamp) -> String {
    let age = Timestamp::now().duration_since(at);
    format!("{} ago", span(age.try_into().unwrap_or_default()))
}

/// An error, shortened to fit on a line of a list.
fn first_line(error: &str) -> String {
    const MAX: usize = 100;
    let line = error.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
