//! Applications: in one transaction, each increments its own row and writes events about it. The ledger
//! records what it does.

pub(super) mod mongodb;
pub(super) mod postgres;
pub(super) mod sqlite;

use std::time::Duration;

use pillarbox::{Event, EventId};
use pillarbox_testkit::ledger::Ledger;
use rand::{RngExt, rngs::StdRng};
use tokio_util::sync::CancellationToken;

use super::TOPIC;

const KEYS: u32 = 48;

/// The events of a transaction: one key, with their places in it.
#[derive(Debug, Default)]
struct Written {
    key: String,
    events: Vec<(EventId, u64)>,
}

impl Written {
    fn new(key: &str, events: &[(Event, u64)]) -> Self {
        Self {
            key: key.to_owned(),
            events: events.iter().map(|(event, n)| (event.id.clone(), *n)).collect(),
        }
    }

    fn committed(&self, ledger: &Ledger) {
        for (id, n) in &self.events {
            ledger.committed(id.clone(), &self.key, *n);
        }
    }

    fn rolled_back(&self, ledger: &Ledger) {
        for (id, _) in &self.events {
            ledger.rolled_back(id.clone());
        }
    }

    fn in_doubt(&self, ledger: &Ledger) {
        for (id, n) in &self.events {
            ledger.in_doubt(id.clone(), &self.key, *n);
        }
    }
}

/// What the next transaction does.
struct Turn {
    key: String,
    count: u64,
    rolls_back: bool,
    /// Writes more events and rolls back only those.
    savepoint: bool,
    /// How long it stays open after writing.
    open: Duration,
    /// The pause before the next transaction.
    pause: Duration,
}

impl Turn {
    fn short(rng: &mut StdRng) -> Self {
        let late = rng.random_bool(0.03);
        Self {
            key: format!("key-{}", rng.random_range(0..KEYS)),
            count: rng.random_range(1..=3),
            rolls_back: rng.random_bool(0.1),
            savepoint: rng.random_bool(0.1),
            open: Duration::from_millis(if late { rng.random_range(50..400) } else { 0 }),
            pause: Duration::from_millis(rng.random_range(5..35)),
        }
    }

    /// A transaction that stays open for seconds. It has its own keys, because it blocks all other writers of
    /// its key.
    fn long(rng: &mut StdRng) -> Self {
        Self {
            key: format!("slow-{}", rng.random_range(0..4)),
            open: Duration::from_millis(rng.random_range(1_000..6_000)),
            ..Self::short(rng)
        }
    }
}

/// Sleeps, but not longer than until producing must end.
async fn sleep(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stop.cancelled() => {}
    }
}

/// The events after a key's counter was increased by `count` to `last`.
fn events(key: &str, count: u64, last: u64) -> Vec<(Event, u64)> {
    let event = |n| {
        Event::to(TOPIC)
            .event_type("Placed")
            .aggregate("order", key)
            .json(&serde_json::json!({ "n": n, "text": "x".repeat(200) }))
            .unwrap()
    };
    (last - count + 1..=last).map(|n| (event(n), n)).collect()
}
