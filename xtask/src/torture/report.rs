//! `cargo xtask torture report`: runs every storm and writes docs/RELIABILITY.md from their summaries.

mod page;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs, process, thread};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Run, campaign_command, one_test_passed};
use crate::campaigns::Campaign;
use crate::obtain;
use crate::steps::{Outcome, Steps, root};

/// The prefix of campaigns with overlapping faults.
const STORMS: &str = "storm_";
/// The folder for the summaries of campaigns.
const FOLDER: &str = "PILLARBOX_TORTURE_REPORT";

/// The summary of a campaign; see the testkit's `storm::Summary`.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(PartialEq))]
struct Summary {
    title: String,
    versions: Vec<String>,
    rounds: u64,
    faults: BTreeMap<String, u64>,
    faults_at_once_mean: f64,
    faults_at_once_max: usize,
    committed: usize,
    rolled_back: usize,
    in_doubt: usize,
    lost: usize,
    undelivered: usize,
    never_committed_but_seen: usize,
    order_violations: usize,
    copies: usize,
    copies_are_dropped: bool,
    dead: u64,
    charged: u64,
    stall_ms: u64,
    bound_ms: u64,
    relay_exits: u64,
    not_covered: Vec<String>,
    broken: Vec<String>,
}

/// A campaign that ran, and its summary.
struct Finished {
    name: String,
    summary: Option<Summary>,
    passed: bool,
}

/// The machine of the run.
struct Machine {
    cores: usize,
    memory_gib: u64,
    date: String,
}

pub(super) fn run(known: &[Campaign], run: &Run) -> Result<ExitCode> {
    let storms: Vec<_> = known
        .iter()
        .filter(|campaign| campaign.name.starts_with(STORMS))
        .collect();
    if storms.is_empty() {
        bail!("there is no campaign whose name starts with {STORMS}");
    }
    let mut steps = Steps::default();
    let servers = obtain::all(&mut steps);
    let folder = env::temp_dir().join(format!("pillarbox-torture-{}", process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;

    let mut results = Vec::new();
    for campaign in storms {
        let mut command = campaign_command(campaign, run.debug);
        command
            .envs(servers.variables())
            .env("PILLARBOX_SEED", run.seed.to_string())
            .env("PILLARBOX_TORTURE_SECONDS", run.seconds.to_string())
            .env(FOLDER, &folder);
        let failed = steps.count(Outcome::Failed);
        let title = format!("{}, {} s, seed {}", campaign.name, run.seconds, run.seed);
        steps.run_with(&title, &mut command, one_test_passed);
        results.push(Finished {
            name: campaign.name.clone(),
            summary: read(&folder.join(format!("{}.json", campaign.name))),
            passed: steps.count(Outcome::Failed) == failed,
        });
    }
    let file = root().join("docs/RELIABILITY.md");
    let text = page::page(&results, run, &machine());
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    steps.summarise();
    println!("docs/RELIABILITY.md is written");
    if steps.count(Outcome::Failed) == 0 {
        let _ = fs::remove_dir_all(&folder);
    } else {
        println!(
            "the summaries, and the relays' logs of what failed: {}",
            folder.display()
        );
    }
    Ok(steps.exit_code())
}

/// `None`: the campaign ended before it wrote a summary.
fn read(file: &Path) -> Option<Summary> {
    let text = fs::read_to_string(file).ok()?;
    serde_json::from_str(&text)
        .inspect_err(|error| eprintln!("{}: {error}", file.display()))
        .ok()
}

fn machine() -> Machine {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    Machine {
        cores: thread::available_parallelism().map_or(0, usize::from),
        memory_gib: kibibytes.unwrap_or_default().div_ceil(1024 * 1024),
        date: date.map_or_else(
            |_| String::new(),
            |date| String::from_utf8_lossy(&date.stdout).trim().to_owned(),
        ),
    }
}
