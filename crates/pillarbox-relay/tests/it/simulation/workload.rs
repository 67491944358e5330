//! Applications: transactions that write events and commit early, late or never.

use std::{sync::Arc, time::Duration};

use pillarbox::{Event, EventId};
use pillarbox_testkit::memory::MemoryStore;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::Mutex;

use super::clock;

/// Writes for some time and returns the ids that were rolled back.
///
/// Two transactions that touch the same key run one after the other, as they would in a database, where both
/// change the same row.
pub(super) async fn run(store: MemoryStore, mut rng: StdRng) -> Vec<EventId> {
    let keys: Arc<Vec<Mutex<()>>> = Arc::new((0..rng.random_range(1..8)).map(|_| Mutex::new(())).collect());
    let mut writers = Vec::new();
    for _ in 0..rng.random_range(10..60) {
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..500))).await;
        let (store, keys, seed) = (store.clone(), keys.clone(), rng.random());
        writers.push(tokio::spawn(transaction(
            store,
            keys,
            StdRng::seed_from_u64(seed),
        )));
    }
    let mut rolled_back = Vec::new();
    for writer in writers {
        rolled_back.extend(writer.await.unwrap());
    }
    rolled_back
}

async fn transaction(store: MemoryStore, keys: Arc<Vec<Mutex<()>>>, mut rng: StdRng) -> Vec<EventId> {
    // Locks are taken in the order of the keys, to avoid deadlocks.
    let mut touched: Vec<usize> = (0..rng.random_range(1..4))
        .map(|_| rng.random_range(0..keys.len()))
        .collect();
    touched.sort_unstable();
    touched.dedup();
    let mut locks = Vec::new();
    for &key in &touched {
        locks.push(keys[key].lock().await);
    }
    let mut transaction = store.begin();
    let mut written = Vec::new();
    for _ in 0..rng.random_range(1..4) {
        let key = touched[rng.random_range(0..touched.len())];
        let payload = match rng.random_range(0..20) {
            0 => "\"poison\"".to_owned(),
            1 => rng.random_range(1..4).to_string(),
            2 => "99".to_owned(),
            3 => "\"unfit\"".to_owned(),
            _ => "{}".to_owned(),
        };
        let topic = match rng.random_range(0..10) {
            0 => "far.x",
            1 => "far.y",
            2 => "far.state",
            3 => "near.strict",
            4 | 5 => "near.state",
            _ => "near.x",
        };
        let mut event = Event::to(topic)
            .event_type("X")
            .aggregate("thing", format!("key-{key}"))
            .payload(payload);
        if rng.random_bool(0.1) {
            let later = jiff::SignedDuration::from_millis(rng.random_range(500..20_000));
            event = event.available_at(clock::now() + later);
        }
        written.push(event.id.clone());
        if rng.random_bool(0.1) {
            assert!(transaction.enqueue(event.clone()));
            assert!(!transaction.enqueue(event), "the same id was accepted twice");
        } else {
            assert!(transaction.enqueue(event));
        }
    }
    let open_ms = if rng.random_bool(0.2) {
        rng.random_range(0..10_000)
    } else {
        rng.random_range(0..50)
    };
    tokio::time::sleep(Duration::from_millis(open_ms)).await;
    if rng.random_bool(0.2) {
        return written;
    }
    transaction.commit();
    Vec::new()
}
