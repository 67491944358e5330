//! `pillarbox dead reprocess`

use anyhow::{Result, bail};
use pillarbox_relay::{
    dead::Actor,
    reprocess::{Schedule, run as reprocess},
};
use serde_json::json;

use super::act::this_user;
use crate::output::{Answer, Context, open_store, store_error, table};

/// Run the configured reprocessing now, whatever its schedule is
///
/// `outbox.dlq.reprocess` says what a relay sends again automatically, and when. This command does
/// it now, with the same filters and limits. The schedule is not changed. To select letters
/// yourself, use `dead replay`.
///
///   pillarbox dead reprocess --dry-run     # how many letters each would send
///   pillarbox dead reprocess nightly
///
/// Exits 1 if there is nothing to send again.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Names of schedules [default: all]
    names: Vec<String>,
    /// Show how many letters would be sent again, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Who acts, for later readers [default: this user]
    #[arg(long, value_name = "NAME", env = "PILLARBOX_ACTOR")]
    by: Option<String>,
}

pub(super) async fn run(args: Args, context: &Context) -> Result<Answer> {
    let settings = context.settings()?;
    let chosen = choose(&settings.reprocess, &args.names)?;
    if !args.dry_run && !settings.dead_letters.replay_allowed {
        bail!("the configuration forbids this command: set `outbox.dlq.enable_manual_replay` to true");
    }
    let open = open_store(&settings)?;
    let by = args.by.unwrap_or_else(this_user);
    let (mut rows, mut answers, mut total) = (table(&["SCHEDULE", "LETTERS"]), Vec::new(), 0);
    for schedule in chosen {
        let letters = if args.dry_run {
            let candidates = open.dead_letters.replayable(
                &schedule.filter,
                schedule.min_age,
                schedule.times_max,
                schedule.limit,
            );
            candidates.await.map_err(store_error)?.len()
        } else {
            let actor = Actor {
                by: by.clone(),
                why: Some(format!("reprocess {}", schedule.name)),
            };
            let done = reprocess(&*open.dead_letters, schedule, &actor);
            done.await.map_err(store_error)?
        };
        total += letters;
        rows.add_row([schedule.name.clone(), letters.to_string()]);
        answers.push(json!({ "schedule": schedule.name, "letters": letters }));
    }
    if context.json {
        context.print_json(&json!({ "dry_run": args.dry_run, "schedules": answers }))?;
    } else {
        context.print(&rows.trim_fmt())?;
        context.say(match (args.dry_run, total) {
            (_, 0) => "There is nothing to send again.",
            (true, _) => "Nothing was changed.",
            (false, _) => "A running relay tries them within a second or two.",
        });
    }
    Ok(if total > 0 { Answer::Yes } else { Answer::No })
}

fn choose<'a>(all: &'a [Schedule], names: &[String]) -> Result<Vec<&'a Schedule>> {
    if all.is_empty() {
        bail!("no reprocessing is configured: see `outbox.dlq.reprocess`, or use `pillarbox dead replay`");
    }
    if let Some(unknown) = names
        .iter()
        .find(|name| all.iter().all(|known| known.name != **name))
    {
        let known: Vec<&str> = all.iter().map(|schedule| &*schedule.name).collect();
        bail!(
            "there is no schedule `{unknown}`; there are: {}",
            known.join(", ")
        );
    }
    let wanted = |schedule: &&Schedule| names.is_empty() || names.contains(&schedule.name);
    Ok(all.iter().filter(wanted).collect())
}
