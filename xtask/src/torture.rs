//! `cargo xtask torture`: runs campaigns for the given time, in release mode, one after the other.

mod report;

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Args;

use crate::campaigns::{self, Campaign, Kind};
use crate::obtain;
use crate::steps::{Outcome, Steps, cargo, root};

const LONG_SECONDS: u64 = 300;
const SHORT_SECONDS: u64 = 5;

#[derive(Args)]
pub(crate) struct Arguments {
    /// A campaign, or `all`; `report` runs the storms and writes docs/RELIABILITY.md; lists the campaigns if
    /// missing
    name: Option<String>,
    /// Repeat the run that printed this seed
    #[arg(long)]
    seed: Option<u64>,
    /// How long each campaign runs
    #[arg(long, conflicts_with = "short", default_value_t = LONG_SECONDS)]
    seconds: u64,
    /// A few seconds each, as in `cargo xtask test`
    #[arg(long)]
    short: bool,
    /// Use a debug build, which builds quickly and runs slowly, instead of release mode
    #[arg(long)]
    debug: bool,
}

/// The parameters of every campaign of this run.
struct Run {
    seed: u64,
    seconds: u64,
    debug: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let known = campaigns::all(&root())?;
    let Some(name) = &arguments.name else {
        let width = known.iter().map(|campaign| campaign.name.len()).max();
        for campaign in known {
            println!(
                "{:<1$} {2}",
                campaign.name,
                width.unwrap_or_default(),
                campaign.summary
            );
        }
        return Ok(ExitCode::SUCCESS);
    };
    let run = Run {
        seed: arguments.seed.unwrap_or_else(any_seed),
        seconds: if arguments.short {
            SHORT_SECONDS
        } else {
            arguments.seconds
        },
        debug: arguments.debug,
    };
    if name == "report" {
        return report::run(&known, &run);
    }
    let chosen: Vec<_> = known
        .iter()
        .filter(|campaign| name == "all" || campaign.name == *name)
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = known.iter().map(|campaign| campaign.name.as_str()).collect();
        bail!("there is no campaign `{name}`; there are: {}", names.join(", "));
    }

    let mut steps = Steps::default();
    let servers = obtain::all(&mut steps);
    let Run { seed, seconds, debug } = run;
    for campaign in chosen {
        let mut command = campaign_command(campaign, debug);
        command
            .envs(servers.variables())
            .env("PILLARBOX_SEED", seed.to_string())
            .env("PILLARBOX_TORTURE_SECONDS", seconds.to_string());
        let title = format!("{}, {seconds} s, seed {seed}", campaign.name);
        steps.run_with(&title, &mut command, one_test_passed);
    }
    steps.summarise();
    println!(
        "{} passed, {} failed",
        steps.count(Outcome::Passed),
        steps.count(Outcome::Failed)
    );
    Ok(steps.exit_code())
}

fn campaign_command(campaign: &Campaign, debug: bool) -> Command {
    let mut command = cargo(&["test", "--workspace", "--all-features"]);
    if !debug {
        command.arg("--release");
    }
    command.args(match campaign.kind {
        Kind::Integration => ["--test", "it"],
        Kind::Unit => ["--lib", "--bins"],
    });
    command.args(["--", &campaign.test, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// Passes the output through and makes sure that the campaign really ran: for the test harness, a filter that
/// matches no test is a success.
fn one_test_passed(command: &mut Command) -> bool {
    let Ok(mut child) = command.stdout(Stdio::piped()).spawn() else {
        return false;
    };
    let mut ran = 0;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            println!("{line}");
            ran += u32::from(line.starts_with("test result: ok. 1 passed"));
        }
    }
    let succeeded = child.wait().is_ok_and(|status| status.success());
    if succeeded && ran == 0 {
        eprintln!("no test of this campaign was found in the build");
    }
    succeeded && ran > 0
}

fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) << 20 ^ now.as_secs()
}
