//! Steps that run one after the other, even if an earlier one failed, and the summary at the end.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Outcome)>,
}

impl Steps {
    /// Runs a command with its output passed through.
    pub(crate) fn run(&mut self, name: &str, command: &mut Command) {
        self.run_with(name, command, |command| {
            command.status().is_ok_and(|status| status.success())
        });
    }

    pub(crate) fn run_with(
        &mut self,
        name: &str,
        command: &mut Command,
        run: impl FnOnce(&mut Command) -> bool,
    ) {
        eprintln!("\n== {name}: {}", line(command));
        let started = Instant::now();
        let outcome = if run(command) {
            Outcome::Passed
        } else {
            Outcome::Failed
        };
        self.note(
            &format!("{name} ({:.0} s)", started.elapsed().as_secs_f64()),
            outcome,
        );
    }

    pub(crate) fn note(&mut self, name: &str, outcome: Outcome) {
        self.done.push((name.to_owned(), outcome));
    }

    /// Something missing is a skip on a developer's machine and a failure with `CI=true`.
    pub(crate) fn missing(&mut self, what: &str) {
        self.note(
            what,
            if in_ci() {
                Outcome::Failed
            } else {
                Outcome::Skipped
            },
        );
    }

    pub(crate) fn count(&self, wanted: Outcome) -> usize {
        self.done.iter().filter(|(_, outcome)| *outcome == wanted).count()
    }

    /// Prints what was done and skipped. The caller adds the last line.
    pub(crate) fn summarise(&self) {
        println!();
        for (name, outcome) in &self.done {
            let word = match outcome {
                Outcome::Passed => "passed ",
                Outcome::Failed => "FAILED ",
                Outcome::Skipped => "SKIPPED",
            };
            println!("{word}  {name}");
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.count(Outcome::Failed) == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn in_ci() -> bool {
    env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Cargo in the workspace's root, whatever the current folder is.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // `cargo run` sets variables about this package. Build scripts that read them (ring's does) would run
    // again, and half of the dependencies would be built again, after every plain `cargo` command.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

pub(crate) fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or(here.clone(), PathBuf::from)
}

fn line(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    command.get_args().fold(name, |line, argument| {
        format!("{line} {}", argument.to_string_lossy())
    })
}
