//! `cargo xtask check`: everything that needs no server.

use std::process::ExitCode;

use anyhow::Result;

use crate::features;
use crate::obtain;
use crate::steps::{Outcome, Steps, cargo};

/// The whole workspace with all features, so that the steps share what was compiled. Only the last steps
/// build other combinations.
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
    let mut documentation = cargo(&["doc", "--workspace", "--all-features", "--no-deps"]);
    steps.run("documentation", documentation.env("RUSTDOCFLAGS", "-D warnings"));
    features::run(&mut steps);
    steps.summarise();
    println!(
        "{} passed, {} failed",
        steps.count(Outcome::Passed),
        steps.count(Outcome::Failed)
    );
    Ok(steps.exit_code())
}
