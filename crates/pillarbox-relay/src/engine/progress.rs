//! Counters and the state of a relay, for status, health, metrics and measurements.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    check::Checks,
    settlement::Settlement,
    store::{Trouble, TroubleKind},
};

/// At most this many troubles are listed.
const TROUBLES_MAX: usize = 20;

/// Counters of one relay since its start. Cheap to read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    pub read: AtomicU64,
    pub published: AtomicU64,
    /// Failures counted against an event.
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
    /// Why the store is away, if it is.
    store_down: Mutex<Option<String>>,
    sinks: Mutex<BTreeMap<String, SinkState>>,
    /// The paused destinations, and why.
    destinations: Mutex<BTreeMap<String, Outage>>,
    /// What the relay waits for, if it has stalled.
    stalled: Mutex<Option<Outage>>,
    /// When the relay's loop last ran.
    ticked: Mutex<Option<Instant>>,
    /// For the state of the schema registry and the number of warnings.
    checks: Option<Arc<Checks>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum SinkState {
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
}

impl Progress {
    pub(super) fn of(checks: Option<Arc<Checks>>) -> Self {
        Self {
            checks,
            ..Self::default()
        }
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
            store_down: self
                .store_down
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            sinks: self.sinks.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            paused: self
                .destinations
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            stalled: self
                .stalled
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            warned: self.checks.as_ref().map_or(0, |checks| checks.warned()),
            schema_registry_down: self.checks.as_ref().and_then(|checks| checks.registry_down()),
        }
    }

    /// Returns whether this is new: the store was up and is down now, or the other way round.
    pub(super) fn store_is(&self, down: Option<String>) -> bool {
        let mut state = self.store_down.lock().unwrap_or_else(PoisonError::into_inner);
        let news = state.is_some() != down.is_some();
        *state = down;
        news
    }

    /// Records that a sink is away and why, or (`None`) that it is up.
    pub(super) fn sink_is(&self, sink: &str, why: Option<&str>) {
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match sinks.remove(sink) {
            Some(SinkState::Down(outage)) => Some(outage),
            Some(SinkState::Up) | None => None,
        };
        let state = Outage::after(before, why).map_or(SinkState::Up, SinkState::Down);
        sinks.insert(sink.to_owned(), state);
    }

    /// Records that a destination accepts nothing and why, or (`None`) that it accepts events.
    pub(super) fn destination_is(&self, label: &str, why: Option<&str>) {
        let mut paused = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outage) = Outage::after(paused.remove(label), why) {
            paused.insert(label.to_owned(), outage);
        }
    }

    pub(super) fn stalled_is(&self, waiting_for: Option<&str>) {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        *stalled = Outage::after(stalled.take(), waiting_for);
    }

    /// The relay's loop runs.
    pub(super) fn tick(&self) {
        *self.ticked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long ago the relay's loop last ran. It runs every second.
    pub fn silent_for(&self) -> Duration {
        let ticked = *self.ticked.lock().unwrap_or_else(PoisonError::into_inner);
        ticked.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// What keeps the relay of this name from delivering: a stall, and sinks and destinations that accept nothing.
    pub fn troubles(&self, relay: &str) -> Vec<Trouble> {
        let report = self.report();
        let trouble = |kind, what, Outage { why, since }| Trouble {
            kind,
            what,
            why,
            since,
        };
        let sinks = report.sinks.into_iter().filter_map(|(sink, state)| match state {
            SinkState::Up => None,
            SinkState::Down(outage) => Some(trouble(TroubleKind::Sink, sink, outage)),
        });
        let paused = report.paused.into_iter();
        let paused = paused.map(|(what, outage)| trouble(TroubleKind::Destination, what, outage));
        let stalled = report.stalled.into_iter();
        let stalled = stalled.map(|outage| trouble(TroubleKind::Stall, relay.to_owned(), outage));
        let mut troubles: Vec<Trouble> = stalled.chain(sinks).chain(paused).collect();
        // Keep the oldest, so that a new trouble does not replace one that people know about.
        troubles.sort_by_key(|trouble| trouble.since);
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
        add(&self.failed, settlement.failed.len());
        add(&self.held, settlement.held.len());
        add(&self.dead, settlement.dead.len());
        add(&self.settled, settlement.len());
    }
}

impl Outage {
    /// The state after this report. `None` if there is no reason. A new reason does not change the start time.
    fn after(before: Option<Self>, why: Option<&str>) -> Option<Self> {
        let why = why?.to_owned();
        let now = || {
            Timestamp::now()
                .round(jiff::Unit::Second)
                .unwrap_or(Timestamp::UNIX_EPOCH)
        };
        let since = before.map_or_else(now, |outage| outage.since);
        Some(Self { why, since })
    }
}

fn add(counter: &AtomicU64, events: usize) {
    counter.fetch_add(events as u64, Ordering::Relaxed);
}
