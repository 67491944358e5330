//! What a campaign leaves for the report.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Serialize;

use super::{LIVENESS_BOUND, Toll};
use crate::{ledger::Verdict, torture::Campaign};

/// The environment variable that names the folder for summaries.
pub const REPORT_FOLDER: &str = "PILLARBOX_TORTURE_REPORT";

/// One campaign, as `cargo xtask torture report` reads it. Times are in milliseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    pub campaign: String,
    /// `PostgreSQL to JetStream`.
    pub title: String,
    pub versions: Vec<String>,
    pub seed: u64,
    pub seconds: u64,
    pub faults: BTreeMap<String, u64>,
    pub faults_at_once_mean: f64,
    pub faults_at_once_max: usize,
    pub committed: usize,
    pub rolled_back: usize,
    /// Transactions' events whose commit was not answered; the database said what became of them.
    pub in_doubt: usize,
    pub lost: usize,
    pub never_committed_but_seen: usize,
    pub order_violations: usize,
    pub copies: usize,
    /// Whether the receiving side drops copies. If not, copies are expected.
    pub copies_are_dropped: bool,
    pub dead: u64,
    /// Events with an attempt on their account.
    pub charged: u64,
    /// From the end of the last fault to the last delivery.
    pub stall_ms: u64,
    pub bound_ms: u64,
    /// How often a relay ended without having been told to, and was started again.
    pub relay_exits: u64,
    /// What this campaign can't judge or can't cause.
    pub not_covered: Vec<String>,
    /// What was broken, in words; empty if nothing was.
    pub broken: Vec<String>,
}

impl Summary {
    pub fn new(campaign: &Campaign, title: &str) -> Self {
        Self {
            campaign: campaign.name().to_owned(),
            title: title.to_owned(),
            seed: campaign.seed(),
            seconds: campaign.budget().as_secs(),
            bound_ms: millis(LIVENESS_BOUND),
            ..Self::default()
        }
    }

    pub fn faults(&mut self, toll: &Toll) {
        self.faults = toll.faults.clone();
        self.faults_at_once_mean = toll.at_once_mean;
        self.faults_at_once_max = toll.at_once_max;
    }

    /// Everything but copies: whether these are a fault depends on the receiving side.
    pub fn verdict(&mut self, verdict: &Verdict) {
        self.committed = verdict.committed;
        self.rolled_back = verdict.rolled_back;
        self.in_doubt = verdict.in_doubt;
        self.lost = verdict.lost;
        self.never_committed_but_seen = verdict.never_committed_but_seen;
        self.order_violations = verdict.order_violations;
        if !verdict.is_whole() {
            self.broken.push(verdict.to_string());
        }
        if verdict.committed == 0 {
            self.broken.push("nothing was committed".to_owned());
        }
    }

    pub fn copies(&mut self, copies: usize, are_dropped: bool) {
        self.copies = copies;
        self.copies_are_dropped = are_dropped;
        if are_dropped && copies > 0 {
            self.broken.push(format!("{copies} copies were not dropped"));
        }
    }

    /// No fault is an event's own failure.
    pub fn charges(&mut self, dead: u64, charged: u64) {
        self.dead = dead;
        self.charged = charged;
        if dead > 0 {
            self.broken.push(format!("{dead} events are dead"));
        }
        if charged > 0 {
            self.broken
                .push(format!("{charged} events were charged with an attempt"));
        }
    }

    /// A short run shares its machine with other tests, so it does not hold the bound against the relay.
    pub fn stalled(&mut self, stall: Duration, campaign: &Campaign) {
        self.stall_ms = millis(stall);
        if stall > LIVENESS_BOUND && !campaign.is_short() {
            self.broken
                .push(format!("the last delivery came {stall:.1?} after the last fault"));
        }
    }

    /// Prints it, leaves it for the report if one is made, and fails if a promise was broken.
    ///
    /// # Panics
    /// When a promise was broken, or the summary can't be written.
    pub fn close(self) {
        let json = serde_json::to_string_pretty(&self).expect("a summary is JSON");
        if let Some(folder) = std::env::var_os(REPORT_FOLDER) {
            let file = PathBuf::from(folder).join(format!("{}.json", self.campaign));
            std::fs::write(&file, &json).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        println!("{json}");
        assert!(self.broken.is_empty(), "{}", self.broken.join("\n"));
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
