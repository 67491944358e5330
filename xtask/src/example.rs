//! `cargo xtask example user-cards`: an example of the folder `examples`, with everything it needs.

use std::env;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::obtain::{self, Kind};
use crate::steps::{Steps, cargo};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Which one
    name: Example,
    /// End with a verdict (exit 0: every promise was kept), instead of running until interrupted
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Example {
    /// Users in MongoDB, their events in Kafka, and cards built from them
    UserCards,
}

/// Builds what takes part, and runs the example's story beside the testkit's servers.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (program, kinds) = match arguments.name {
        Example::UserCards => ("user-cards", [Kind::Mongodb, Kind::Kafka]),
    };
    let servers = obtain::for_running(&mut Steps::default(), &kinds);
    let packages = [
        "build",
        "--quiet",
        "--package",
        "pillarbox-cli",
        "--package",
        "pillarbox-testkit",
    ];
    let built = cargo(&packages)
        .args(["--package", program])
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "the example can't be built");
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    // Cargo puts everything it builds into one folder, this program among it.
    let here = env::current_exe()?;
    let mut command = Command::new(here.with_file_name("servers"));
    command
        .args(["--with", &names.join(",")])
        .arg(here.with_file_name(program))
        .arg("story");
    if arguments.once {
        command.arg("--once");
    }
    let status = command
        .envs(servers.variables())
        .status()
        .context("cannot run the example")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
