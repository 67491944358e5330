//! Runs a command next to private servers and stops them when it ends. The command finds their URLs in its
//! environment. Without a command, the servers run until interrupted. `--with postgres,nats` (or mongodb,
//! kafka) selects them.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use pillarbox_testkit::servers::{Kafka, KafkaOptions, Mongo, MongoOptions, Nats, Postgres, PostgresOptions};

/// A server, and how a `pillarbox` command finds it.
struct Running {
    role: Role,
    url: String,
    _server: Box<dyn std::any::Any>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Database,
    Broker,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let kinds = match arguments.next_if(|argument| argument == "--with") {
        Some(_) => arguments.next().unwrap_or_default(),
        None => "postgres,nats".into(),
    };
    let mut running = Vec::new();
    for kind in kinds.to_string_lossy().split(',') {
        match start(kind).await? {
            Some(server) => running.push(server),
            None => return Ok(ExitCode::from(2)),
        }
    }
    // Any `pillarbox` command uses these as its configuration.
    let url = |role| {
        running
            .iter()
            .find(|server| server.role == role)
            .map(|server| &server.url)
    };
    let variables: Vec<(&str, &String)> = [
        ("PILLARBOX_OUTBOX__DATABASE__URL", url(Role::Database)),
        ("PILLARBOX_OUTBOX__SINKS__EVENTS__URL", url(Role::Broker)),
    ]
    .into_iter()
    .filter_map(|(name, url)| Some((name, url?)))
    .collect();
    for (name, url) in &variables {
        writeln!(std::io::stderr(), "{name}={url}")?;
    }

    let Some(program) = arguments.next() else {
        tokio::signal::ctrl_c().await?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .envs(variables)
        .spawn()?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            // The terminal interrupts the command too; the servers keep running until it has ended.
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Measurements use these settings: memory and log size as for a busy production server.
async fn start(kind: &str) -> Result<Option<Running>> {
    fn running(role: Role, url: String, server: impl std::any::Any) -> Running {
        Running {
            role,
            url,
            _server: Box::new(server),
        }
    }
    Ok(match kind {
        "postgres" => {
            // The default write-ahead log. (Tests need logical decoding, which makes it larger.)
            let options = PostgresOptions::default()
                .set("shared_buffers", "1GB")
                .set("max_wal_size", "8GB")
                .set("checkpoint_timeout", "15min")
                .set("wal_level", "replica");
            match Postgres::start(options).await {
                Some(server) => Some(running(Role::Database, server.database().await, server)),
                None => None,
            }
        }
        "mongodb" => Mongo::start_with(MongoOptions {
            cache_gigabytes: 1.0,
            ..MongoOptions::default()
        })
        .await
        .map(|server| running(Role::Database, server.database(), server)),
        "nats" => Nats::start()
            .await
            .map(|server| running(Role::Broker, server.url(), server)),
        "kafka" => Kafka::start_with(KafkaOptions {
            measured: true,
            ..KafkaOptions::default()
        })
        .await
        .map(|server| running(Role::Broker, server.url(), server)),
        other => bail!("there is no server `{other}`: postgres, mongodb, nats or kafka"),
    })
}
