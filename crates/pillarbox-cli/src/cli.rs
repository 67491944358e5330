//! The arguments that all commands share, and the list of commands.

#[cfg(test)]
mod fuzz;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pillarbox_relay::driver;

use crate::{command, config::Sources, demo};

/// Delivers the events that a database committed.
///
/// An application writes its data and an event in one transaction. After the commit, Pillarbox
/// delivers the event to NATS JetStream, Kafka, an HTTP stream or a file: never lost, at least
/// once, in order per key. An event whose transaction is rolled back is never delivered.
///
/// See it work, with nothing installed:
///   pillarbox demo
///
/// Use it:
///   pillarbox --database postgres://app@127.0.0.1/shop migrate
///   pillarbox --database postgres://app@127.0.0.1/shop --sink nats://127.0.0.1:4222 run
#[derive(Parser)]
#[command(name = "pillarbox", version, verbatim_doc_comment, after_long_help = AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
Configuration: --config FILE, else $PILLARBOX_CONFIG, else ./pillarbox.yaml if it exists, else the defaults.
A variable overrides a key; two underscores separate the levels: PILLARBOX_OUTBOX__DATABASE__URL.
Exit codes: 0 done, 1 the answer is no, 2 an error. Data is on stdout, everything else on stderr.";

#[derive(Args, Clone, Default)]
pub(crate) struct Global {
    /// The configuration file [default: ./pillarbox.yaml if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "PILLARBOX_CONFIG")]
    pub config: Option<PathBuf>,
    #[arg(long, global = true, value_name = "URL",
          help = format!("The database with the outbox: {}", driver::store_examples()))]
    pub database: Option<String>,
    #[arg(long, global = true, value_name = "URL",
          help = format!("One sink for everything: {}", driver::sink_examples()))]
    pub sink: Option<String>,
    /// Print JSON on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// What to log on stderr: error, warn, info, debug, trace, or a filter such as pillarbox_relay=debug
    #[arg(long, global = true, value_name = "FILTER", env = "PILLARBOX_LOG")]
    pub log: Option<String>,
    /// The format of the log
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Global {
    pub(crate) fn sources(&self) -> Sources {
        Sources {
            file: self.config.clone(),
            database: self.database.clone(),
            sink: self.sink.clone(),
            listen: None,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Run(command::run::Args),
    Migrate(command::migrate::Args),
    Adopt(command::adopt::Args),
    Enqueue(Box<command::enqueue::Args>),
    Check(command::check::Args),
    Status(command::status::Args),
    Health(command::health::Args),
    Tail(command::tail::Args),
    Events(command::events::Args),
    Catalog(command::catalog::Args),
    Dead(Box<command::dead::Args>),
    #[command(visible_alias = "topics")]
    Streams(command::streams::Args),
    Token(command::token::Args),
    Config(command::config::Args),
    Bench(command::bench::Args),
    Openapi(command::openapi::Args),
    Completions(command::completions::Args),
}
