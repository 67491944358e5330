//! `cargo xtask servers -- COMMAND`: a private PostgreSQL and NATS for as long as the command runs.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::obtain;
use crate::steps::{Steps, cargo};

#[derive(Args)]
pub(crate) struct Arguments {
    /// What to run; without it the servers run until they are interrupted
    #[arg(last = true)]
    command: Vec<String>,
}

/// The servers are the testkit's; this only makes sure that they are installed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let servers = obtain::for_running(&mut Steps::default());
    let mut command = cargo(&[
        "run",
        "--quiet",
        "--package",
        "pillarbox-testkit",
        "--bin",
        "servers",
        "--",
    ]);
    let status = command
        .args(&arguments.command)
        .envs(servers.variables())
        .status()
        .context("cannot run cargo")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
