//! `cargo xtask test`: every test on real servers, then the PostgreSQL tests again on each other version.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, fs, process};

use anyhow::Result;
use clap::Args;

use crate::cache;
use crate::obtain::{self, Servers};
use crate::room;
use crate::steps::{Outcome, Steps, cargo};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only tests whose name contains this, and only on the default PostgreSQL (or on
    /// PILLARBOX_TEST_POSTGRES)
    filter: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    room::warn_if_little();
    let mut steps = Steps::default();
    let servers = obtain::all(&mut steps);
    let skips = Skips::new();

    let mut everything = cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]);
    everything.args(&arguments.filter);
    steps.run("tests", prepare(&mut everything, &servers, &skips));

    if arguments.filter.is_none() {
        for (major, _) in cache::POSTGRES {
            let name = format!("tests on PostgreSQL {major}");
            if servers.postgres(major).is_none() {
                steps.missing(&name);
                continue;
            }
            let arguments = [
                "test",
                "--workspace",
                "--all-features",
                "--no-fail-fast",
                "--test",
                "it",
                "postgres",
                // The pooler does the same for every version.
                "--",
                "--skip",
                "through_a_transaction_pooler",
            ];
            let mut again = cargo(&arguments);
            again.env("PILLARBOX_TEST_POSTGRES", major.to_string());
            steps.run(&name, prepare(&mut again, &servers, &skips));
        }
    }

    for skipped in skips.take() {
        steps.note(&skipped, Outcome::Skipped);
    }
    steps.summarise();
    let [passed, failed, skipped] =
        [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|it| steps.count(it));
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(steps.exit_code())
}

fn prepare<'a>(command: &'a mut Command, servers: &Servers, skips: &Skips) -> &'a mut Command {
    command
        .envs(servers.variables())
        .env("PILLARBOX_SKIPS", &skips.file)
}

/// The file in which tests record that they were skipped.
struct Skips {
    file: PathBuf,
}

impl Skips {
    fn new() -> Self {
        let file = env::temp_dir().join(format!("pillarbox-skips-{}", process::id()));
        let _ = fs::remove_file(&file);
        Self { file }
    }

    fn take(self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let _ = fs::remove_file(&self.file);
        text.lines()
            .map(|line| line.trim_start_matches("SKIPPED: ").to_owned())
            .collect()
    }
}
