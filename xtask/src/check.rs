//! `cargo xtask check`: everything that needs no server.

use std::process::ExitCode;

use anyhow::Result;

use crate::obtain;
use crate::steps::{Outcome, Steps, cargo};

/// Always the whole workspace with all features, so that the steps share what was compiled.
pub(crate) fn run() -> Result<ExitCode> {
    obtain::build_tools();
    let mut steps = Steps::default();
    steps.run("formatting", &mut cargo(&["fmt", "--all", "--check"]));
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ];
    steps.run("lints", &mut cargo(&clippy));
    let unit = [
        "test",
        "--workspace",
        "--all-features",
        "--lib",
        "--bins",
        "--no-fail-fast",
    ];
    steps.run("unit tests", &mut cargo(&unit));
    steps.run(
        "doc tests",
        &mut cargo(&["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]),
    );
    steps.summarise();
    println!(
        "{} passed, {} failed",
        steps.count(Outcome::Passed),
        steps.count(Outcome::Failed)
    );
    Ok(steps.exit_code())
}
