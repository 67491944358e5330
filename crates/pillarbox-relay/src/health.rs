//! Decides what is wrong with a relay and its outbox, in three parts. Pure: everything it judges is an argument.
//!
//! - **publisher**: the relay runs, and reaches its database, its sinks and its schema registry.
//! - **performance**: events are delivered in time, and most attempts succeed.
//! - **data**: every lane has an owner, no event was missed, and dead letters do not pile up.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use crate::{
    audit,
    engine::{
        SinkState,
        progress::{Loss, ProgressReport, RECENT, Recent},
    },
    store::Sample,
};

/// A sample is taken every few seconds. An older one says nothing about the outbox.
pub const SAMPLE_AGE_MAX: Duration = Duration::from_secs(60);
/// A share of fewer attempts than this means nothing.
const ATTEMPTS_MIN: u64 = 20;

/// What counts as healthy. `None`: not judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthLimits {
    /// The age of the oldest event that waits for delivery.
    pub oldest_age_max: Option<Duration>,
    /// Events that wait for a retry.
    pub failed_max: Option<u64>,
    /// The share of attempts that succeed, of the last five minutes.
    pub success_rate_min: Option<f64>,
    /// How many more dead letters may be open than five minutes ago.
    pub dead_growth_max: Option<u64>,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self {
            oldest_age_max: Some(Duration::from_secs(300)),
            failed_max: Some(1_000),
            success_rate_min: Some(0.9),
            dead_growth_max: Some(100),
        }
    }
}

/// A part, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Publisher,
    Performance,
    Data,
}

impl Part {
    pub const ALL: [Self; 3] = [Self::Publisher, Self::Performance, Self::Data];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Publisher => "publisher",
            Self::Performance => "performance",
            Self::Data => "data",
        })
    }
}

/// What is wrong: a sentence for each problem. A part without problems is healthy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    problems: BTreeMap<Part, Vec<String>>,
}

/// The state of one part, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartHealth<'a> {
    pub healthy: bool,
    pub problems: &'a [String],
}

impl Health {
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }

    pub fn part(&self, part: Part) -> PartHealth<'_> {
        let problems = self.problems.get(&part).map_or(&[][..], Vec::as_slice);
        PartHealth {
            healthy: problems.is_empty(),
            problems,
        }
    }

    pub fn parts(&self) -> BTreeMap<Part, PartHealth<'_>> {
        Part::ALL
            .into_iter()
            .map(|part| (part, self.part(part)))
            .collect()
    }

    fn add(&mut self, part: Part, problem: String) {
        self.problems.entry(part).or_default().push(problem);
    }
}

/// The relay of this process. `stalled`: what it waits for, if it makes no progress.
pub fn of_relay(
    report: &ProgressReport,
    stalled: Option<String>,
    sample: Option<&(Sample, Duration)>,
    recent: Recent,
    limits: &HealthLimits,
) -> Health {
    let mut health = Health::default();
    publisher(report, stalled, &mut health);
    match sample {
        Some((sample, age)) if *age <= SAMPLE_AGE_MAX => of_outbox(sample, limits, &mut health),
        Some((_, age)) => health.add(
            Part::Performance,
            format!("the outbox was last looked at {} s ago", age.as_secs()),
        ),
        None => health.add(Part::Performance, "the outbox has not been looked at yet".into()),
    }
    let attempts = recent.published + recent.failed;
    if let Some(min) = limits.success_rate_min.filter(|_| attempts >= ATTEMPTS_MIN) {
        let rate = recent.published as f64 / attempts as f64;
        if rate < min {
            let minutes = RECENT.as_secs() / 60;
            health.add(
                Part::Performance,
                format!(
                    "{:.0} % of {attempts} attempts succeeded in the last {minutes} minutes; the limit is {:.0} %",
                    rate * 100.0,
                    min * 100.0
                ),
            );
        }
    }
    for (sink, audit) in &report.audits {
        if let Some(Loss { events, ids, .. }) = &audit.loss {
            health.add(
                Part::Data,
                format!(
                    "{events} delivered events are gone from the sink {sink}: {}",
                    audit::shown(ids)
                ),
            );
        }
    }
    if report.swept > 0 {
        health.add(
            Part::Data,
            format!(
                "discovery missed {} events; the sweep delivered them",
                report.swept
            ),
        );
    }
    if let Some(max) = limits.dead_growth_max.filter(|&max| recent.dead_growth > max) {
        let (more, minutes) = (recent.dead_growth, RECENT.as_secs() / 60);
        health.add(
            Part::Data,
            format!("{more} more dead letters are open than {minutes} minutes ago; the limit is {max}"),
        );
    }
    health
}

/// What a look at the database shows, without a relay in this process.
pub fn of_database(sample: &Sample, limits: &HealthLimits) -> Health {
    let mut health = Health::default();
    if sample.relays == 0 {
        health.add(Part::Publisher, "no relay is running".into());
    }
    of_outbox(sample, limits, &mut health);
    health
}

fn publisher(report: &ProgressReport, stalled: Option<String>, health: &mut Health) {
    let mut add = |problem| health.add(Part::Publisher, problem);
    if let Some(waiting_for) = stalled {
        add(format!("the relay makes no progress: {waiting_for}"));
    }
    if let Some(why) = &report.store_down {
        add(format!("the database is away: {why}"));
    }
    for (sink, state) in &report.sinks {
        match state {
            SinkState::Up => {}
            SinkState::Untried => add(format!("the sink {sink} has not answered yet")),
            SinkState::Down(outage) => add(format!("the sink {sink} is away: {}", outage.why)),
        }
    }
    for (destination, outage) in &report.paused {
        add(format!("{destination} accepts nothing: {}", outage.why));
    }
    if let Some(why) = &report.schema_registry_down {
        add(format!("the schema registry is away: {why}"));
    }
}

fn of_outbox(sample: &Sample, limits: &HealthLimits, health: &mut Health) {
    if let (Some(age), Some(max)) = (sample.oldest_age, limits.oldest_age_max)
        && age > max
    {
        health.add(
            Part::Performance,
            format!(
                "the oldest undelivered event is {} s old; the limit is {} s",
                age.as_secs(),
                max.as_secs()
            ),
        );
    }
    if let Some(max) = limits.failed_max.filter(|&max| sample.failed > max) {
        health.add(
            Part::Performance,
            format!("{} events wait for a retry; the limit is {max}", sample.failed),
        );
    }
    if sample.lanes_without_owner > 0 {
        health.add(
            Part::Data,
            format!(
                "{} of 256 lanes have no relay: their events wait",
                sample.lanes_without_owner
            ),
        );
    }
}

#[cfg(test)]
mod tests;
