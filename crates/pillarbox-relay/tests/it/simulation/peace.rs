//! After the last fault, everything that can be delivered is delivered within a stated time.

use std::{collections::HashMap, time::Duration};

use pillarbox_testkit::memory::{MemoryStore, Row, Status};
use rand::{RngExt, rngs::StdRng};
use tokio::time::Instant;

use super::{
    broker::{Absence, Broker, TOPICS},
    clock,
    fleet::Fleet,
};

/// The promise of the README for the default settings: the sum of leases, probes and backoffs.
const LIVENESS_BOUND: Duration = Duration::from_secs(30);
/// The longest total wait of one failing event: 1, 2, 4 and 8 s, up to a quarter longer by jitter, and the
/// time to find it.
const BACKOFFS: Duration = Duration::from_secs(24);
/// The time that a person may take to look at a blocked key.
const PERSON: Duration = Duration::from_secs(3_600);

/// In some histories a destination stays away after all other faults have ended. The others must not wait for
/// it.
pub(super) async fn some_destinations_stay_away(
    store: &MemoryStore,
    brokers: &[Broker; 2],
    fleet: &Fleet,
    rng: &mut StdRng,
) {
    if rng.random_bool(0.7) {
        return;
    }
    let (at, topic) = (rng.random_range(0..2), TOPICS[rng.random_range(0..TOPICS.len())]);
    brokers[at].set_absent(topic, Some(Absence::any(rng)));
    let away = |row: &Row| brokers[at].is_absent(&row.stored.event.topic);
    settled(store, fleet, away).await;
    brokers[at].set_absent(topic, None);
}

pub(super) async fn everything_arrives_in_time(store: &MemoryStore, brokers: &[Broker; 2], fleet: &Fleet) {
    settled(store, fleet, |_| false).await;
    while !brokers.iter().all(Broker::is_quiet) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until every row is published or dead, except rows whose destination is away and rows behind them in
/// their keys. Each row has its own deadline.
async fn settled(store: &MemoryStore, fleet: &Fleet, away: impl Fn(&Row) -> bool) {
    let began = Instant::now();
    // The time of a row starts when it is first seen.
    let mut first_seen: HashMap<i64, Instant> = HashMap::new();
    loop {
        fleet.supervise();
        let rows = store.rows();
        let now = Instant::now();
        let unsettled = |row: &&Row| !matches!(row.status, Status::Published | Status::Dead);
        // The first event of each key whose destination is away.
        let mut first_away: HashMap<&str, i64> = HashMap::new();
        for row in rows.iter().filter(unsettled).filter(|row| away(row)) {
            first_away.entry(row.stored.event.key()).or_insert(row.stored.seq);
        }
        let mut waits = false;
        for row in rows.iter().filter(unsettled) {
            let seen = *first_seen.entry(row.stored.seq).or_insert(now);
            // A delayed event whose time has come waits with the failing events of its key.
            let delayed = row.stored.event.available_at.is_some();
            let before = first_away.get(row.stored.event.key());
            if before.is_some_and(|before| delayed || *before <= row.stored.seq) {
                continue;
            }
            waits = true;
            let deadline = seen + time_for(row, &rows);
            assert!(
                now < deadline,
                "{:?} after the last fault, {:?} after its commit, seq {} of {} is {:?} after {} attempts ({:?})",
                now - began,
                now - seen,
                row.stored.seq,
                row.stored.event.key(),
                row.status,
                row.stored.attempts,
                row.last_error,
            );
        }
        if !waits {
            return;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// How long an event may take: the stated bound, the backoffs of the failing events of its key, its own
/// delay, and the time of a person if its key can be blocked.
fn time_for(row: &Row, rows: &[Row]) -> Duration {
    let of_key = || {
        rows.iter()
            .filter(|other| other.stored.event.key() == row.stored.event.key())
    };
    let failing = of_key()
        .filter(|other| other.stored.event.payload[0].is_ascii_digit())
        .count() as u32;
    let delays = of_key().filter_map(|other| other.stored.event.available_at);
    let delay = delays.map(|at| at.duration_since(clock::now())).max();
    let delay = delay
        .and_then(|delay| Duration::try_from(delay).ok())
        .unwrap_or_default();
    let blocked = of_key()
        .any(|other| other.stored.event.topic == "near.strict" && other.stored.event.payload[..] != *b"{}");
    let person = if blocked { PERSON } else { Duration::ZERO };
    LIVENESS_BOUND + BACKOFFS * failing + delay + person
}
