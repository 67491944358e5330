//! The tasks of developers and of CI: `cargo xtask check`, `cargo xtask test`, `cargo xtask torture`, `cargo
//! xtask servers`.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "talking to a person is what this program is for"
)]

#[path = "../../crates/pillarbox-testkit/src/servers/cache.rs"]
mod cache;
mod campaigns;
mod check;
mod example;
mod features;
mod obtain;
mod room;
mod servers;
mod steps;
mod test;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, tests and tortures Pillarbox")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Formatting, lints, unit tests, doc tests, the documentation and each feature alone: everything without
    /// a server
    Check,
    /// Every test on real servers, which are downloaded once and kept outside the repository
    Test(test::Arguments),
    /// The long campaigns; lists them if no name is given
    Torture(torture::Arguments),
    /// Starts private servers, runs a command that is configured for them, and stops them
    Servers(servers::Arguments),
    /// Runs an example on private servers and shows what happens
    Example(example::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Task::Check => check::run(),
        Task::Test(arguments) => test::run(&arguments),
        Task::Torture(arguments) => torture::run(&arguments),
        Task::Servers(arguments) => servers::run(&arguments),
        Task::Example(arguments) => example::run(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
