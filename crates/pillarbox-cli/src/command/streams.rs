//! `pillarbox streams check|apply`

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Subcommand;
use pillarbox_relay::{
    connect,
    sink::{Comparison, StreamState, Streams},
};
use serde_json::json;

use crate::{
    config::Settings,
    output::{Answer, Context, table},
};

/// Compare the streams and topics of the configuration with those at the sinks, or create them
///
///   pillarbox --config pillarbox.yaml streams check    # exit 1 if one is missing or differs
///   pillarbox --config pillarbox.yaml streams apply    # create missing ones, change those that differ
///
/// NATS streams and Kafka topics; `pillarbox topics` is the same command.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare and change nothing. Exits 1 if one is missing or differs
    ///
    /// Example:
    ///   pillarbox --config pillarbox.yaml streams check
    #[command(verbatim_doc_comment)]
    Check,
    /// Create missing ones and change those that differ; shows their state from before
    ///
    /// Example:
    ///   pillarbox --config pillarbox.yaml streams apply
    #[command(verbatim_doc_comment)]
    Apply,
}

/// A sink's name and its streams or topics.
type Named = (Arc<str>, Arc<dyn Streams>);

/// The sinks with streams, by name. Sinks without configured streams are left out.
fn with_streams(settings: &Settings) -> Result<Vec<Named>> {
    let mut found = Vec::new();
    for sink in settings.sinks.iter().filter(|sink| sink.options.has_streams()) {
        if let Some(streams) = connect::sink(&sink.options)?.streams {
            found.push((sink.name.clone(), streams));
        }
    }
    Ok(found)
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    let sinks = with_streams(&settings)?;
    if sinks.is_empty() {
        bail!(
            "the configuration names no streams (outbox.streams) and no topics (outbox.topics). List them, for example\n  streams:\n    - {{ name: ORDERS, subjects: [\"shop.order.>\"] }}    # NATS\n  topics:\n    - {{ name: shop.order, partitions: 6 }}                # Kafka"
        );
    }
    let apply = matches!(args.command, Command::Apply);
    let mut states = Vec::new();
    for (name, streams) in sinks {
        let found = if apply {
            streams.apply_streams().await
        } else {
            streams.check_streams().await
        };
        let found = found.map_err(|error| anyhow::anyhow!("sink `{name}`: {error}"))?;
        states.extend(found.into_iter().map(|state| (name.clone(), state)));
    }
    let in_order = states.iter().all(|(_, state)| state.state == Comparison::Same);
    if context.json {
        let list: Vec<_> = states
            .iter()
            .map(|(sink, state)| {
                let mut value = json!(state);
                value["sink"] = json!(&**sink);
                value
            })
            .collect();
        context.print_json(&json!({ "applied": apply, "in_order": apply || in_order, "streams": list }))?;
    } else {
        print(&states, apply, context)?;
        if !apply && !in_order {
            context.say("Run `pillarbox streams apply` to create or change them.");
        }
    }
    Ok(if apply || in_order {
        Answer::Yes
    } else {
        Answer::No
    })
}

fn print(states: &[(Arc<str>, StreamState)], applied: bool, context: &Context) -> Result<()> {
    let mut rows = table(&["NAME", "SINK", "STATE", "DIFFERENCES"]);
    for (sink, state) in states {
        let (word, differences) = match (&state.state, applied) {
            (Comparison::Same, _) => (context.good("as configured"), String::new()),
            (Comparison::Missing, true) => (context.good("made"), String::new()),
            (Comparison::Missing, false) => (context.bad("missing"), String::new()),
            (Comparison::Differs { differences }, true) => (context.good("changed"), differences.join("\n")),
            (Comparison::Differs { differences }, false) => (context.bad("differs"), differences.join("\n")),
        };
        rows.add_row([state.name.clone(), sink.to_string(), word, differences]);
    }
    context.print(&rows.trim_fmt())
}
