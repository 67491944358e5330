//! Users in MongoDB, their events through Pillarbox to Kafka, and a projection that builds cards from them.
//!
//! [`users`] changes a user and writes the event about it in one transaction. [`api`] offers this over HTTP.
//! [`cards`] consumes the events. [`story`] runs all of it, on a [`stage`] of real processes.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to a person is what this program is for"
)]

mod api;
mod cards;
mod database;
mod stage;
mod story;
mod users;

use std::{net::SocketAddr, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// The topic of user events, and the name of the projection's group.
const TOPIC: &str = "sc.domain.user";
const GROUP: &str = "sc-proj-user-cards";

#[derive(Parser)]
#[command(about = "Users in MongoDB, their events in Kafka, and cards built from them")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The service: users over HTTP
    Serve {
        #[command(flatten)]
        database: Database,
        /// The address to listen on; port 0 takes a free one
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// The projection: consumes the events and builds a card for each user
    Project {
        #[command(flatten)]
        database: Database,
        #[command(flatten)]
        broker: Broker,
    },
    /// Runs everything step by step: service, Pillarbox and projection as separate processes
    Story(story::Arguments),
}

#[derive(Args, Clone)]
struct Database {
    /// mongodb://host/database?replicaSet=name
    #[arg(long, env = "PILLARBOX_OUTBOX__DATABASE__URL")]
    mongodb: String,
}

#[derive(Args, Clone)]
struct Broker {
    /// kafka://host:port
    #[arg(long, env = "PILLARBOX_OUTBOX__SINKS__EVENTS__URL")]
    kafka: String,
}

impl Broker {
    /// The address in the format of Kafka's clients.
    fn bootstrap(&self) -> &str {
        self.kafka.trim_start_matches("kafka://")
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Serve { database, listen } => api::serve(&database, listen).await?,
        Command::Project { database, broker } => cards::project(&database, &broker).await?,
        Command::Story(arguments) => return story::tell(arguments).await,
    }
    Ok(ExitCode::SUCCESS)
}
