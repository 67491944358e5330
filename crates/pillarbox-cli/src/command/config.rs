//! `pillarbox config check|schema`

use anyhow::Result;
use clap::Subcommand;
use pillarbox_relay::{check::Checks, store::sqlite};
use serde_json::json;

use crate::{
    config::{self, Invalid},
    http::tls::Tls,
    output::{Answer, Context, tell},
};

/// Check the configuration, or print its schema
///
///   pillarbox config check                     # the effective values, secrets masked; exit 1 if something is wrong
///   pillarbox config schema > pillarbox.schema.json   # for an editor
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Report mistakes, or print the effective values (of file, environment and flags; secrets
    /// masked)
    ///
    /// Compiles the rules and reads the schemas of `schema_folder`. Files that addresses name must
    /// exist. It makes no connection. Exits 0 if the configuration is correct and 1 if it is not.
    ///
    /// Example:
    ///   PILLARBOX_OUTBOX__PUBLISHER__BATCH_SIZE=500 pillarbox --config pillarbox.yaml config check
    #[command(verbatim_doc_comment)]
    Check,
    /// Print the configuration's JSON Schema
    ///
    /// Example:
    ///   pillarbox config schema > pillarbox.schema.json
    #[command(verbatim_doc_comment)]
    Schema,
}

pub(crate) fn run(args: Args, context: &Context) -> Result<Answer> {
    match args.command {
        Command::Schema => {
            context.print(&serde_json::to_string_pretty(&config::json_schema())?)?;
            Ok(Answer::Yes)
        }
        Command::Check => check(context),
    }
}

fn check(context: &Context) -> Result<Answer> {
    let checked = config::load(&context.sources()).and_then(|loaded| {
        let settings = loaded.settings()?;
        config::can_be_opened(&settings)?;
        settings.http.tls.as_ref().map(Tls::open).transpose()?;
        // The schemas of a folder are part of the configuration, as far as they can be read without
        // a connection.
        Checks::new(&settings.checks.options, None)?;
        Ok(loaded)
    });
    let loaded = match checked {
        Ok(loaded) => loaded,
        Err(error) => {
            let problems: Vec<String> = match error.downcast_ref::<Invalid>() {
                Some(Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
                None => vec![format!("{error:#}")],
            };
            if context.json {
                context.print_json(&json!({ "valid": false, "problems": problems }))?;
            }
            for problem in problems {
                context.say(&context.bad(&problem));
            }
            return Ok(Answer::No);
        }
    };
    let (text, value) = config::in_force(&loaded.config)?;
    let settings = loaded.settings()?;
    let exposed = sqlite::exposed(&settings.database.url);
    let warnings: Vec<String> = exposed.into_iter().chain(settings.http.warnings()).collect();
    for warning in &warnings {
        context.say(&context.bad(warning));
    }
    if context.json {
        let file = loaded.file;
        context.print_json(&json!({ "valid": true, "file": file, "config": value, "warnings": warnings }))?;
    } else {
        match &loaded.file {
            Some(file) => tell(&format!("{} is correct. Effective values:", file.display())),
            None => tell("There is no configuration file. Effective values:"),
        }
        context.print(text.trim_end())?;
    }
    Ok(Answer::Yes)
}
