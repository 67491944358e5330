//! `cargo xtask servers -- COMMAND`: private servers while the command runs.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::obtain::{self, Kind};
use crate::steps::{Steps, cargo};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The servers to start; the command is configured for the first database and the first broker
    #[arg(long = "with", value_delimiter = ',', default_values_t = [Kind::Postgres, Kind::Nats])]
    kinds: Vec<Kind>,
    /// The command to run; without it the servers run until interrupted
    #[arg(last = true)]
    command: Vec<String>,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The testkit starts the servers; this only makes sure that they are installed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    obtain::build_tools();
    let servers = obtain::for_running(&mut Steps::default(), &arguments.kinds);
    let names: Vec<_> = arguments.kinds.iter().map(|kind| kind.name()).collect();
    let mut command = cargo(&[
        "run",
        "--quiet",
        "--package",
        "pillarbox-testkit",
        "--bin",
        "servers",
        "--",
        "--with",
        &names.join(","),
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
