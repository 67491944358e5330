//! Runs a command beside a private PostgreSQL (fsync on) and NATS, whose URLs it finds in its environment, and stops
//! them when it ends. Without a command, until interrupted.

use std::io::Write;
use std::process::ExitCode;

use pillarbox_testkit::servers::{Nats, Postgres, PostgresOptions};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    // Measurements are made on this one: memory and room for the log as an operator of a busy server would give them, and
    // the log as it comes. (Tests want logical decoding, which makes it larger.)
    let options = PostgresOptions::default()
        .set("shared_buffers", "1GB")
        .set("max_wal_size", "8GB")
        .set("checkpoint_timeout", "15min")
        .set("wal_level", "replica");
    let Some(postgres) = Postgres::start(options).await else {
        return Ok(ExitCode::from(2));
    };
    let Some(nats) = Nats::start().await else {
        return Ok(ExitCode::from(2));
    };
    // Any `pillarbox` command takes these for its configuration.
    let variables = [
        ("PILLARBOX_OUTBOX__DATABASE__URL", postgres.database().await),
        ("PILLARBOX_OUTBOX__SINKS__EVENTS__URL", nats.url()),
    ];
    for (name, url) in &variables {
        writeln!(std::io::stderr(), "{name}={url}")?;
    }

    let mut arguments = std::env::args_os().skip(1);
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
            // The terminal interrupts the command too; the servers stay until it is through.
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
