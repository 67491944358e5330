//! `pillarbox token new`

use anyhow::{Result, anyhow};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::Subcommand;
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
};
use serde_json::{Value, json};

use crate::{
    config::Role,
    output::{Answer, Context, tell},
};

/// Lets secret scanners recognise a token that was published by mistake.
const PREFIX: &str = "pillarbox_";

/// Make a token for the HTTP API
///
///   pillarbox token new --name ci --role produce
///   pillarbox token new --name support --role read --project shop
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a new token, and the lines for `outbox.http.tokens`
    ///
    /// The token is on stdout, the lines on stderr. Nothing is stored: the configuration gets only the
    /// token's hash, and nobody can show the token again.
    #[command(verbatim_doc_comment)]
    New(New),
}

#[derive(clap::Args)]
struct New {
    /// The caller's name in the log and in the history of dead letters, without a colon
    #[arg(long, value_parser = name)]
    name: String,
    /// What it may do; can be given several times
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<Role>,
    /// Only events of this project
    #[arg(long)]
    project: Option<String>,
    /// Only events of this user
    #[arg(long)]
    user: Option<String>,
}

/// The configuration refuses other names.
fn name(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err("it is empty"),
        text if text.contains(':') => {
            Err("it contains `:`, and names of other kinds of callers begin with `jwt:` or `cert:`")
        }
        text => Ok(text.to_owned()),
    }
}

pub(crate) fn run(args: Args, context: &Context) -> Result<Answer> {
    let Command::New(new) = args.command;
    let mut random = [0; 32];
    let system = SystemRandom::new();
    system
        .fill(&mut random)
        .map_err(|_| anyhow!("the system has no random numbers"))?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    let entry = entry(new, &token);
    if context.json {
        context.print_json(&json!({ "token": token, "configuration": entry }))?;
        return Ok(Answer::Yes);
    }
    context.print(&token)?;
    tell("This is the only time that the token is shown. Add this to the configuration:");
    tell(&format!("outbox:\n  http:\n    tokens:\n      - {entry}"));
    Ok(Answer::Yes)
}

/// An entry of `outbox.http.tokens`. JSON's braces are also YAML.
fn entry(new: New, token: &str) -> Value {
    let hash = digest(&SHA256, token.as_bytes());
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut entry = json!({ "name": new.name, "sha256": hash, "roles": new.roles });
    for (name, scope) in [("project", new.project), ("user", new.user)] {
        if let Some(scope) = scope {
            entry[name] = scope.into();
        }
    }
    entry
}
