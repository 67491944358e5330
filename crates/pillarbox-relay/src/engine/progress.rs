//! Counters and the state of a relay, for status, health, metrics and measurements.

mod audits;
mod history;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use self::{
    audits::Audits,
    history::{Counts, History},
};
pub use self::{
    audits::{AuditReport, Loss},
    history::{Drain, RECENT, Recent},
};
use crate::{
    audit,
    check::Checks,
    health::{self, Health, HealthLimits},
    metrics::recorded::Recorded,
    settlement::Settlement,
    sink::audit::{AuditProblem, Audited},
    store::{Sample, Trouble, TroubleKind},
    trace::Traces,
};

/// At most this many troubles are listed.
const TROUBLES_MAX: usize = 20;
/// A relay's loop runs every second. After this time without a run it is stuck.
const LOOP_SILENT_MAX: Duration = Duration::from_secs(30);

/// Counters of one relay since its start. Cheap to read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    pub read: AtomicU64,
    pub published: AtomicU64,
    /// Failed attempts that were counted against an event, also those that killed it.
    pub failed: AtomicU64,
    pub held: AtomicU64,
    pub dead: AtomicU64,
    /// Settled in the store: published, parked or dead.
    pub settled: AtomicU64,
    /// Events that the sweep found and discovery had missed. Should stay 0.
    pub swept: AtomicU64,
    /// Read and not settled yet.
    pub in_flight: AtomicU64,
    pub lanes: AtomicU64,
    /// Statements that the store ran.
    pub statements: AtomicU64,
    /// Why the store is away, if it is, and since when.
    store_down: Mutex<Option<(String, Instant)>>,
    sinks: Mutex<BTreeMap<String, SinkRecord>>,
    /// The paused destinations, and why.
    destinations: Mutex<BTreeMap<String, Outage>>,
    /// What the relay waits for, if it has stalled.
    stalled: Mutex<Option<Outage>>,
    /// When the relay's loop last ran.
    ticked: Mutex<Option<Instant>>,
    /// For the state of the schema registry and the number of warnings.
    checks: Option<Arc<Checks>>,
    /// For the number of spans.
    traces: Option<Arc<Traces>>,
    /// Counters and histograms that only metrics show.
    pub(crate) recorded: Recorded,
    pub(crate) audits: Audits,
    /// The latest figures about the outbox, and when they were read.
    sample: Mutex<Option<(Sample, Instant)>>,
    clock: Clock,
    history: Mutex<History>,
}

/// The time of day.
#[derive(Debug)]
struct Clock(fn() -> Timestamp);

impl Default for Clock {
    fn default() -> Self {
        Self(Timestamp::now)
    }
}

/// A sink, and how long it was away.
#[derive(Debug)]
struct SinkRecord {
    state: SinkState,
    away_since: Option<Instant>,
    /// Outages that are over.
    away: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum SinkState {
    /// The relay has just started, and the sink has not answered yet.
    Untried,
    Up,
    /// Paused until it answers again. No attempt is counted.
    Down(Outage),
}

/// Why something does not work: a sink, a stream, a topic, a partition, or the relay itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outage {
    pub why: String,
    /// To the second.
    pub since: Timestamp,
}

/// The counters and the state at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgressReport {
    pub read: u64,
    pub published: u64,
    pub failed: u64,
    pub held: u64,
    pub dead: u64,
    pub settled: u64,
    pub swept: u64,
    pub in_flight: u64,
    pub lanes: u64,
    pub statements: u64,
    pub store_down: Option<String>,
    pub sinks: BTreeMap<String, SinkState>,
    /// Destinations that are paused: `sink/stream topic[partition]`.
    pub paused: BTreeMap<String, Outage>,
    /// What the relay waits for, if it has stalled.
    pub stalled: Option<Outage>,
    /// Failed checks that only caused a warning.
    pub warned: u64,
    /// Why the schema registry is away, if it is. Events may wait to be checked.
    pub schema_registry_down: Option<String>,
    /// What the audits found, by sink. Only sinks that can look up what they delivered.
    pub audits: BTreeMap<String, AuditReport>,
}

impl Progress {
    pub(crate) fn new<'a>(
        checks: Option<Arc<Checks>>,
        traces: Option<Arc<Traces>>,
        sinks: impl Iterator<Item = &'a Arc<str>>,
        clock: fn() -> Timestamp,
    ) -> Self {
        let progress = Self {
            checks,
            traces,
            clock: Clock(clock),
            ..Self::default()
        };
        for sink in sinks {
            progress.recorded.begin(sink);
            let record = SinkRecord {
                state: SinkState::Untried,
                away_since: None,
                away: Duration::ZERO,
            };
            lock(&progress.sinks).insert(sink.to_string(), record);
        }
        progress
    }

    pub fn report(&self) -> ProgressReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProgressReport {
            read: read(&self.read),
            published: read(&self.published),
            failed: read(&self.failed),
            held: read(&self.held),
            dead: read(&self.dead),
            settled: read(&self.settled),
            swept: read(&self.swept),
            in_flight: read(&self.in_flight),
            lanes: read(&self.lanes),
            statements: read(&self.statements),
            store_down: lock(&self.store_down).as_ref().map(|(why, _)| why.clone()),
            sinks: lock(&self.sinks)
                .iter()
                .map(|(sink, record)| (sink.clone(), record.state.clone()))
                .collect(),
            paused: lock(&self.destinations).clone(),
            stalled: lock(&self.stalled).clone(),
            warned: self.checks.as_ref().map_or(0, |checks| checks.warned()),
            schema_registry_down: self.checks.as_ref().and_then(|checks| checks.registry_down()),
            audits: self.audits.report(),
        }
    }

    /// Returns whether this is new.
    pub(super) fn store_is_down(&self, why: String) -> bool {
        let mut down = lock(&self.store_down);
        let since = down.as_ref().map(|(_, since)| *since);
        *down = Some((why, since.unwrap_or_else(Instant::now)));
        since.is_none()
    }

    /// Returns how long the store was away, if it was.
    pub(super) fn store_is_up(&self) -> Option<Duration> {
        let (_, since) = lock(&self.store_down).take()?;
        Some(since.elapsed())
    }

    /// Records that a sink is away and why, or (`None`) that it is up. Returns how long it was away, if it is back.
    pub(crate) fn sink_is(&self, sink: &str, why: Option<&str>) -> Option<Duration> {
        let mut sinks = lock(&self.sinks);
        let record = sinks.get_mut(sink)?;
        let before = match &record.state {
            SinkState::Down(outage) => Some(outage.clone()),
            SinkState::Up | SinkState::Untried => None,
        };
        record.state = self.outage(before, why).map_or(SinkState::Up, SinkState::Down);
        if why.is_some() {
            record.away_since.get_or_insert_with(Instant::now);
            return None;
        }
        let away = record.away_since.take()?.elapsed();
        record.away += away;
        Some(away)
    }

    /// Spans that a collector accepted, and spans that were dropped.
    pub(crate) fn spans(&self) -> (u64, u64) {
        let traces = self.traces.as_ref();
        traces.map_or((0, 0), |traces| (traces.exported(), traces.dropped()))
    }

    /// How long each sink was away, in total until now.
    pub(crate) fn sink_outages(&self) -> BTreeMap<String, Duration> {
        let away = |record: &SinkRecord| {
            let now = record.away_since.map_or(Duration::ZERO, |since| since.elapsed());
            record.away + now
        };
        let sinks = lock(&self.sinks);
        sinks
            .iter()
            .map(|(sink, record)| (sink.clone(), away(record)))
            .collect()
    }

    pub(crate) fn set_sample(&self, sample: Sample) {
        let now = Instant::now();
        lock(&self.history).push(Counts {
            at: now,
            published: self.published.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            dead: sample.dead.values().sum(),
        });
        *lock(&self.sample) = Some((sample, now));
    }

    /// What happened in the last minutes.
    pub fn recent(&self) -> Recent {
        lock(&self.history).recent()
    }

    /// How fast the outbox drains now.
    pub fn drain(&self) -> Drain {
        lock(&self.history).drain(self.lanes.load(Ordering::Relaxed))
    }

    /// How many events waited for delivery when the latest figures were read.
    pub(super) fn waiting(&self) -> Option<u64> {
        let (sample, _) = self.sample()?;
        Some(sample.pending + sample.failed + sample.held)
    }

    /// The latest figures about the outbox, and their age.
    pub fn sample(&self) -> Option<(Sample, Duration)> {
        let sample = lock(&self.sample).clone();
        sample.map(|(sample, at)| (sample, at.elapsed()))
    }

    /// Records that a destination accepts nothing and why, or (`None`) that it accepts events.
    pub(super) fn destination_is(&self, label: &str, why: Option<&str>) {
        let mut paused = lock(&self.destinations);
        if let Some(outage) = self.outage(paused.remove(label), why) {
            paused.insert(label.to_owned(), outage);
        }
    }

    /// The state after this report. `None` if there is no reason. A new reason does not change the start time.
    fn outage(&self, before: Option<Outage>, why: Option<&str>) -> Option<Outage> {
        let why = why?.to_owned();
        let since = before.map_or_else(|| self.now(), |outage| outage.since);
        Some(Outage { why, since })
    }

    /// To the second.
    fn now(&self) -> Timestamp {
        let now = (self.clock.0)().round(jiff::Unit::Second);
        now.unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Returns the problems that are new.
    pub(crate) fn audited<'a>(&self, sink: &str, audited: &'a Audited) -> Vec<&'a AuditProblem> {
        self.audits.found(sink, audited, self.now())
    }

    pub(super) fn stalled_is(&self, waiting_for: Option<&str>) {
        let mut stalled = lock(&self.stalled);
        *stalled = self.outage(stalled.take(), waiting_for);
    }

    /// The relay's loop runs.
    pub(super) fn tick(&self, statements: u64) {
        self.statements.store(statements, Ordering::Relaxed);
        *lock(&self.ticked) = Some(Instant::now());
    }

    /// How long ago the relay's loop last ran. It runs every second.
    pub fn silent_for(&self) -> Duration {
        let ticked = *lock(&self.ticked);
        ticked.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// What the relay waits for, if it makes no progress or its loop is stuck.
    pub fn stalled(&self) -> Option<String> {
        let silent = self.silent_for();
        let stuck = || format!("the relay's loop has been stuck for {} s", silent.as_secs());
        let stalled = lock(&self.stalled).as_ref().map(|stalled| stalled.why.clone());
        stalled.or_else(|| (silent > LOOP_SILENT_MAX).then(stuck))
    }

    /// What is wrong with this relay and its outbox.
    pub fn health(&self, limits: &HealthLimits) -> Health {
        let (report, sample) = (self.report(), self.sample());
        health::of_relay(&report, self.stalled(), sample.as_ref(), self.recent(), limits)
    }

    /// What keeps the relay of this name from delivering: a stall, and sinks and destinations that accept nothing. Also
    /// events that were delivered and are gone.
    pub fn troubles(&self, relay: &str) -> Vec<Trouble> {
        let report = self.report();
        let trouble = |kind, what, Outage { why, since }| Trouble {
            kind,
            what,
            why,
            since,
            events: None,
        };
        let sinks = report.sinks.into_iter().filter_map(|(sink, state)| match state {
            SinkState::Up | SinkState::Untried => None,
            SinkState::Down(outage) => Some(trouble(TroubleKind::Sink, sink, outage)),
        });
        let paused = report.paused.into_iter();
        let paused = paused.map(|(what, outage)| trouble(TroubleKind::Destination, what, outage));
        let stalled = report.stalled.into_iter();
        let stalled = stalled.map(|outage| trouble(TroubleKind::Stall, relay.to_owned(), outage));
        let audits = report.audits.into_iter();
        let lost = audits.filter_map(|(sink, audit)| {
            let Loss { since, ids, events } = audit.loss?;
            let why = audit::shown(&ids);
            Some(Trouble {
                events: Some(events),
                ..trouble(TroubleKind::Loss, sink, Outage { why, since })
            })
        });
        let mut troubles: Vec<Trouble> = stalled.chain(sinks).chain(paused).chain(lost).collect();
        // A loss or a stall is never left out. Of the others keep the oldest, so that a new trouble does not replace
        // one that people know about.
        let is_rare = |trouble: &Trouble| matches!(trouble.kind, TroubleKind::Loss | TroubleKind::Stall);
        troubles.sort_by_key(|trouble| (!is_rare(trouble), trouble.since));
        troubles.truncate(TROUBLES_MAX);
        troubles
    }

    pub(super) fn read(&self, events: usize) {
        add(&self.read, events);
    }

    pub(super) fn swept(&self, events: usize) {
        add(&self.swept, events);
    }

    pub(super) fn set_in_flight(&self, events: usize) {
        self.in_flight.store(events as u64, Ordering::Relaxed);
    }

    pub(super) fn set_lanes(&self, lanes: usize) {
        self.lanes.store(lanes as u64, Ordering::Relaxed);
    }

    pub(super) fn delivered(&self, events: usize) {
        add(&self.published, events);
    }

    pub(super) fn settled(&self, settlement: &Settlement) {
        let charged = settlement.failed.iter().filter(|failed| failed.charged).count();
        let killed = settlement.dead.iter().filter(|dead| dead.tried).count();
        add(&self.failed, charged + killed);
        add(&self.held, settlement.held.len());
        add(&self.dead, settlement.dead.len());
        add(&self.settled, settlement.len());
        self.recorded.settled(settlement);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(counter: &AtomicU64, events: usize) {
    counter.fetch_add(events as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
