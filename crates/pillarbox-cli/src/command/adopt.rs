//! `pillarbox adopt`

use anyhow::{Result, bail};
use pillarbox_relay::{
    adoption::{Adoption, Start},
    layout::Layout,
};
use serde_json::json;

use super::time::time_or_ago;
use crate::output::{Answer, Context, open_store, progress, store_error, tell};

/// Run on an outbox table that your team already has (PostgreSQL)
///
/// Its producers stay as they are: a trigger copies each new row into Pillarbox's own tables, in
/// the producer's transaction. Its readers stay as they are: when an event is delivered, fails or
/// dies, the row's own columns say so, in the table's own words. No column and no index is added.
///
/// `outbox.layout` says which column is what, by a preset or column by column (docs/ADOPT.md).
///
///   pillarbox adopt                 see what it would do; nothing is changed
///   pillarbox adopt --print         the same as SQL
///   pillarbox adopt --apply         do it; `pillarbox run` then delivers
///   pillarbox adopt --undo          remove everything again
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Do it
    #[arg(long, conflicts_with_all = ["print", "undo"])]
    apply: bool,
    /// Print the SQL and change nothing
    #[arg(long, conflicts_with = "undo")]
    print: bool,
    /// Remove everything that was added. Rows that are not delivered still say so
    #[arg(long)]
    undo: bool,
    /// Undo even if undelivered events are lost, or delivered ones look undelivered
    #[arg(long, requires = "undo")]
    force: bool,
    /// Which of the rows that exist are delivered: `everything` that the table shows as not delivered, nothing
    /// (`now`), or what is not delivered and was created since a time: 2026-01-31T12:00:00Z, or 30m, 12h, 7d ago
    #[arg(long, value_name = "START", default_value = "everything", value_parser = start)]
    from: Start,
}

fn start(text: &str) -> Result<Start, String> {
    match text {
        "everything" => Ok(Start::Everything),
        "now" => Ok(Start::Now),
        _ => time_or_ago(text)
            .map(Start::From)
            .map_err(|problem| format!("{problem}; or everything, or now")),
    }
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    let Some(layout) = &settings.database.layout else {
        bail!(
            "`outbox.layout` says nothing about the table: name a preset, such as `layout: {{ preset: status-words }}`, or the columns"
        );
    };
    let open = open_store(&settings)?;
    let Some(adoption) = open.adoption else {
        bail!("only tables in PostgreSQL can be adopted");
    };
    if args.undo {
        let done = adoption.undo(layout, args.force).await.map_err(store_error)?;
        return finish(context, &done, json!({ "done": done }), "It is as it was.");
    }
    if args.apply {
        return apply(&*adoption, layout, args.from, context).await;
    }
    let plan = adoption.plan(layout, args.from).await.map_err(store_error)?;
    if args.print {
        match context.json {
            true => context.print_json(&json!({ "sql": plan.sql }))?,
            false => context.print(plan.sql.trim_end())?,
        }
        return Ok(Answer::Yes);
    }
    if context.json {
        context.print_json(&plan)?;
        return Ok(Answer::Yes);
    }
    context.print(&match plan.adopted {
        true => format!("{} is adopted. An adoption adds:", layout.table),
        false => format!(
            "The layout fits the table {}. An adoption would add:",
            layout.table
        ),
    })?;
    for line in &plan.adds {
        context.print(&format!("  {line}"))?;
    }
    for warning in &plan.warnings {
        tell(&format!("warning: {warning}."));
    }
    if !plan.adopted {
        tell("Nothing was changed. `--print` shows the SQL, `--apply` runs it, `--undo` removes it.");
    }
    Ok(Answer::Yes)
}

async fn apply(adoption: &dyn Adoption, layout: &Layout, from: Start, context: &Context) -> Result<Answer> {
    let bar = progress(context, "copied", 0);
    let adopted = adoption
        .adopt(layout, from, &|done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })
        .await;
    bar.finish_and_clear();
    let adopted = adopted.map_err(store_error)?;
    let answer = serde_json::to_value(&adopted)?;
    finish(
        context,
        &adopted.done,
        answer,
        "The table is adopted: `pillarbox run` delivers its events.",
    )
}

fn finish(context: &Context, done: &[String], answer: serde_json::Value, last: &str) -> Result<Answer> {
    if context.json {
        context.print_json(&answer)?;
    } else {
        for line in done {
            context.print(line)?;
        }
        context.say(last);
    }
    Ok(Answer::Yes)
}
