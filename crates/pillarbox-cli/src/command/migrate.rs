//! `pillarbox migrate`

mod inbox;

use anyhow::Result;
use serde_json::json;

use crate::output::{Answer, Context, open_store, store_error, tell};

/// Make the outbox's tables, or bring them up to date
///
/// In PostgreSQL also the function `pillarbox.enqueue`, for applications in any language; a role
/// without the right to the schema `pillarbox` does without, and is told what to ask for.
/// Running it again changes nothing. Those who run their migrations themselves take the SQL. (For
/// SQLite it makes a new outbox; only `migrate` itself brings one of version 2 up to date.)
///
///   pillarbox --database postgres://app@127.0.0.1/shop migrate
///   pillarbox --database postgres://app@127.0.0.1/shop migrate --print > migrations/0042_outbox.sql
///
/// A consumer in Rust remembers in its own database what it has processed. That needs other tables:
///
///   pillarbox --database postgres://app@127.0.0.1/billing migrate --inbox
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Print the SQL instead of running it; the database is not connected to
    #[arg(long)]
    print: bool,
    /// Make a consumer's inbox (processed_events and what stands beside it) instead of the outbox
    #[arg(long)]
    inbox: bool,
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    if args.inbox {
        return make_inbox(args.print, &settings.database.url, context).await;
    }
    let open = open_store(&settings)?;
    let versions = settings.checks.options.aggregate_versions.is_some();
    if args.print {
        let mut sql = open.admin.migration_sql();
        // The unique index serves the check, too.
        if settings.unique_versions {
            sql.push('\n');
            sql.push_str(&open.versions.unique_index_sql());
        } else if versions {
            sql.push('\n');
            sql.push_str(&open.versions.index_sql());
        }
        if context.json {
            context.print_json(&json!({ "sql": sql }))?;
        } else {
            context.print(sql.trim_end())?;
        }
        return Ok(Answer::Yes);
    }
    let mut done = open.admin.migrate().await.map_err(store_error)?;
    if settings.unique_versions {
        done.extend(open.versions.make_unique_index().await.map_err(store_error)?);
    }
    if versions {
        done.extend(open.versions.make_index().await.map_err(store_error)?);
    }
    let missing = open.admin.missing().await.map_err(store_error)?;
    for line in &missing {
        tell(&format!("warning: {line}."));
    }
    if context.json {
        context.print_json(&json!({ "done": done, "missing": missing }))?;
    } else {
        for line in &done {
            context.print(line)?;
        }
        context.say(if done.is_empty() {
            "Everything was up to date."
        } else {
            "The outbox is ready."
        });
    }
    Ok(Answer::Yes)
}

async fn make_inbox(print: bool, url: &str, context: &Context) -> Result<Answer> {
    if print {
        let sql = inbox::sql(url)?;
        match context.json {
            true => context.print_json(&json!({ "sql": sql }))?,
            false => context.print(sql.trim_end())?,
        }
        return Ok(Answer::Yes);
    }
    inbox::migrate(url).await?;
    let done = "processed_events, processed_versions and processed_events_attempts are there";
    match context.json {
        true => context.print_json(&json!({ "done": [done] }))?,
        false => context.print(done)?,
    }
    Ok(Answer::Yes)
}
