//! The summary that a campaign writes for the report.

use std::{collections::BTreeMap, io::Write, path::PathBuf, time::Duration};

use serde::Serialize;

use super::{LIVENESS_BOUND, Toll};
use crate::{ledger::Verdict, torture::Campaign};

/// The environment variable with the folder for summaries.
pub const REPORT_FOLDER: &str = "PILLARBOX_TORTURE_REPORT";

/// One campaign, as `cargo xtask torture report` reads it. Times are in milliseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    pub campaign: String,
    /// For example `PostgreSQL to JetStream`.
    pub title: String,
    pub versions: Vec<String>,
    pub seed: u64,
    pub seconds: u64,
    /// The number of storms; each is followed by a quiet time.
    pub rounds: u64,
    pub faults: BTreeMap<String, u64>,
    /// The mean of the rounds' means.
    pub faults_at_once_mean: f64,
    pub faults_at_once_max: usize,
    pub committed: usize,
    pub rolled_back: usize,
    /// Events of transactions whose commit got no answer; the database showed the result.
    pub in_doubt: usize,
    /// Not received, and not in the database either.
    pub lost: usize,
    /// Not received in time, but still in the database.
    pub undelivered: usize,
    pub never_committed_but_seen: usize,
    pub order_violations: usize,
    pub copies: usize,
    /// Whether the receiver drops copies. If not, copies are expected.
    pub copies_are_dropped: bool,
    pub dead: u64,
    /// Events that were charged with an attempt.
    pub charged: u64,
    /// From the end of a round's last fault to the last delivery: the longest of the rounds.
    pub stall_ms: u64,
    pub bound_ms: u64,
    /// How often a relay ended without being asked to, and was restarted.
    pub relay_exits: u64,
    /// What this campaign can't check or can't cause.
    pub not_covered: Vec<String>,
    /// The broken promises, as text; empty if there are none.
    pub broken: Vec<String>,
    /// As one test among many it prints nothing if all is well.
    #[serde(skip)]
    quiet: bool,
}

impl Summary {
    pub fn new(campaign: &Campaign, title: &str) -> Self {
        Self {
            campaign: campaign.name().to_owned(),
            title: title.to_owned(),
            seed: campaign.seed(),
            seconds: campaign.budget().as_secs(),
            bound_ms: millis(LIVENESS_BOUND),
            quiet: campaign.is_short(),
            ..Self::default()
        }
    }

    /// Adds a round's faults.
    pub fn add(&mut self, toll: &Toll) {
        for (kind, count) in &toll.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        let (before, now) = (self.rounds as f64, self.rounds as f64 + 1.0);
        self.faults_at_once_mean = (self.faults_at_once_mean * before + toll.at_once_mean) / now;
        self.faults_at_once_max = self.faults_at_once_max.max(toll.at_once_max);
        self.rounds += 1;
    }

    /// Everything except copies: whether they are a fault depends on the receiver. `unsettled` events are
    /// still in the database.
    pub fn verdict(&mut self, verdict: &Verdict, unsettled: u64) {
        self.committed = verdict.committed;
        self.rolled_back = verdict.rolled_back;
        self.in_doubt = verdict.in_doubt;
        // A lost event may be mistaken for a waiting one. The campaign has failed then in any case.
        self.undelivered = usize::try_from(unsettled).unwrap_or(usize::MAX).min(verdict.lost);
        self.lost = verdict.lost - self.undelivered;
        self.never_committed_but_seen = verdict.never_committed_but_seen;
        self.order_violations = verdict.order_violations;
        if unsettled > 0 {
            self.broken.push(format!("{unsettled} events are not settled"));
        }
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

    /// No fault may be charged to an event. `errors` are the errors that were charged.
    pub fn charges(&mut self, dead: u64, charged: u64, errors: &[String]) {
        self.dead = dead;
        self.charged = charged;
        let errors = errors.join("; ");
        if dead > 0 {
            self.broken.push(format!("{dead} events are dead: {errors}"));
        }
        if charged > 0 {
            self.broken
                .push(format!("{charged} events were charged with an attempt: {errors}"));
        }
    }

    /// A short run shares its machine with other tests, so it does not check the bound.
    pub fn stalled(&mut self, stall: Duration, campaign: &Campaign) {
        self.stall_ms = self.stall_ms.max(millis(stall));
        if stall > LIVENESS_BOUND && !campaign.is_short() {
            self.broken
                .push(format!("the last delivery came {stall:.1?} after the last fault"));
        }
    }

    /// Prints the summary, writes it for the report if there is one, and fails if a promise was broken.
    ///
    /// # Panics
    /// If a promise was broken, or the summary can't be written.
    pub fn close(self) {
        let json = serde_json::to_string_pretty(&self).expect("a summary is JSON");
        if let Some(folder) = std::env::var_os(REPORT_FOLDER) {
            let file = PathBuf::from(folder).join(format!("{}.json", self.campaign));
            std::fs::write(&file, &json).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        if !self.quiet || !self.broken.is_empty() {
            let _ = writeln!(std::io::stdout(), "{json}");
        }
        assert!(self.broken.is_empty(), "{}", self.broken.join("\n"));
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
