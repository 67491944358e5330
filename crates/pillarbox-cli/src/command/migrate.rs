//! `pillarbox migrate`

mod inbox;

use anyhow::Result;
use pillarbox_relay::check::versions::VersionIndex;
use serde_json::json;

use crate::output::{Answer, Context, open_store, store_error, tell};

/// Create the outbox's tables, or update them
///
/// In PostgreSQL it also creates the function `pillarbox.enqueue`, for applications in any
/// language. If the role has no right to the schema `pillarbox`, it skips the function and prints
/// what to ask for. Running it again changes nothing. If you run your migrations yourself, use the
/// SQL from --print. (For SQLite that SQL only creates a new outbox; only `migrate` itself updates
/// one of version 2.)
///
///   pillarbox --database postgres://app@127.0.0.1/shop migrate
///   pillarbox --database postgres://app@127.0.0.1/shop migrate --print > migrations/0042_outbox.sql
///
/// A consumer in Rust records in its own database what it has processed. That needs other tables:
///
///   pillarbox --database postgres://app@127.0.0.1/billing migrate --inbox
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Print the SQL instead of running it; makes no connection
    #[arg(long)]
    print: bool,
    /// Create a consumer's inbox (processed_events and the tables next to it) instead of the outbox
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
    // The unique index serves the check, too.
    let index = match settings.checks.options.aggregate_versions {
        _ if settings.unique_versions => Some(VersionIndex::Unique),
        Some(_) => Some(VersionIndex::Plain),
        None => None,
    };
    if args.print {
        let mut sql = open.admin.migration_sql();
        if let Some(index) = index {
            sql.push('\n');
            sql.push_str(&open.require_versions().map_err(store_error)?.index_sql(index));
        }
        if context.json {
            context.print_json(&json!({ "sql": sql }))?;
        } else {
            context.print(sql.trim_end())?;
        }
        return Ok(Answer::Yes);
    }
    let mut done = open.admin.migrate().await.map_err(store_error)?;
    if let Some(index) = index {
        let versions = open.require_versions().map_err(store_error)?;
        done.extend(versions.make_index(index).await.map_err(store_error)?);
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
    let done = "processed_events, processed_versions and processed_events_attempts exist";
    match context.json {
        true => context.print_json(&json!({ "done": [done] }))?,
        false => context.print(done)?,
    }
    Ok(Answer::Yes)
}
