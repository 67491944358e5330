//! Overlapping faults on real servers: several relays of the real binary, many producers, and everything that can fail fails at
//! random, often several things at once. When the time is up all faults end; the ledger judges at the receiver.
//!
//! One campaign for each pair of a database and a broker.

mod broker;
mod clock;
mod database;
mod producers;
mod relays;

use std::{collections::HashSet, sync::Arc, time::Duration};

use pillarbox_testkit::{
    ledger::Ledger,
    storm::{LIVENESS_BOUND, Storm, Summary, Toll},
    torture::Campaign,
};
use tempfile::TempDir;
use tokio::time::Instant;

use self::{
    broker::{Broker, jetstream::JetStream, kafka::Kafka},
    clock::Clock,
    database::{Database, mongodb::MongoDb, postgres::Postgres, sqlite::Sqlite},
    relays::Relays,
};

/// Everything that has no bound of its own.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait beyond the bound, so that a failure says "late" or "never".
const LATE_MAX: Duration = Duration::from_secs(30);
/// Relays at work side by side.
const RELAYS: usize = 3;
/// The route's topic; in Kafka also the topic.
const TOPIC: &str = "orders.placed";

/// Everything fails at once between PostgreSQL and JetStream.
#[tokio::test(flavor = "multi_thread")]
async fn torture_storm_from_postgres_to_jetstream() {
    storm::<Postgres, JetStream>("storm_from_postgres_to_jetstream").await;
}

/// Everything fails at once between PostgreSQL and Kafka.
#[tokio::test(flavor = "multi_thread")]
async fn torture_storm_from_postgres_to_kafka() {
    storm::<Postgres, Kafka>("storm_from_postgres_to_kafka").await;
}

/// Everything fails at once between SQLite and JetStream.
#[tokio::test(flavor = "multi_thread")]
async fn torture_storm_from_sqlite_to_jetstream() {
    storm::<Sqlite, JetStream>("storm_from_sqlite_to_jetstream").await;
}

/// Everything fails at once between SQLite and Kafka.
#[tokio::test(flavor = "multi_thread")]
async fn torture_storm_from_sqlite_to_kafka() {
    storm::<Sqlite, Kafka>("storm_from_sqlite_to_kafka").await;
}

/// Everything fails at once between MongoDB and JetStream.
#[tokio::test(flavor = "multi_thread")]
async fn torture_storm_from_mongodb_to_jetstream() {
    storm::<MongoDb, JetStream>("storm_from_mongodb_to_jetstream").await;
}

/// Everything fails at once between MongoDB and Kafka.
#[tokio::test(flavor = "multi_thread")]
async fn torture_storm_from_mongodb_to_kafka() {
    storm::<MongoDb, Kafka>("storm_from_mongodb_to_kafka").await;
}

async fn storm<D: Database, B: Broker>(name: &'static str) {
    let campaign = Campaign::begin(name);
    let folder = TempDir::new().unwrap();
    let (Some(database), Some(broker)) = (D::start(folder.path()).await, B::start().await) else {
        return;
    };
    let ledger = Arc::new(Ledger::new());
    let clock = Clock::start(folder.path());
    let relays = Relays::new(folder.path(), &database, &broker, clock.as_ref()).await;
    relays.run_once(&["migrate"]).await;
    database.prepare().await;
    relays.start_all().await;

    let mut storm = Storm::new(campaign.seed());
    relays.fail(&mut storm);
    database.fail(&mut storm);
    broker.fail(&mut storm, &ledger);
    if let Some(clock) = &clock {
        clock.fail(&mut storm);
    }
    let producing = database.produce(&ledger, campaign.seed(), storm.over());
    let toll = storm.rage(campaign.budget()).await;
    let end = async { producing.join_all().await };
    let ended = tokio::time::timeout(PATIENCE, end).await;
    assert!(ended.is_ok(), "the producers don't end");
    ledger.decide(&database.which_exist(&ledger.undecided()).await);

    let mut summary = Summary::new(&campaign, &format!("{} to {}", D::NAME, B::NAME));
    summary.versions = vec![database.version().await, broker.version().await];
    summary.not_covered = [D::NOT_COVERED, B::NOT_COVERED]
        .concat()
        .iter()
        .map(|&words| words.into())
        .collect();
    if clock.is_none() {
        summary
            .not_covered
            .push("a relay's clock that steps (libfaketime is not here)".into());
    }
    summary.faults(&toll);
    judge(
        &mut summary,
        &campaign,
        &toll,
        (&database, &broker),
        (&ledger, &relays),
    )
    .await;
    relays.stop_all(&mut summary).await;
    if !summary.broken.is_empty() {
        relays.show_logs(&campaign);
    }
    summary.close();
}

/// Waits until everything committed was received, or until it is clear that it is too late.
async fn judge<D: Database, B: Broker>(
    summary: &mut Summary,
    campaign: &Campaign,
    toll: &Toll,
    (database, broker): (&D, &B),
    (ledger, relays): (&Ledger, &Relays),
) {
    let grace = if campaign.is_short() { PATIENCE } else { LATE_MAX };
    let deadline = Instant::from_std(toll.ended) + LIVENESS_BOUND + grace;
    loop {
        relays.revive().await;
        broker.receive(ledger).await;
        if ledger.committed_and_seen() == ledger.committed_count() || Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stall = toll.ended.elapsed();
    // What the broker holds, the relay has still to note in the database.
    while database.unsettled().await > 0 && Instant::now() < deadline {
        relays.revive().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let unsettled = database.unsettled().await;
    if unsettled > 0 {
        summary.broken.push(format!("{unsettled} events are not settled"));
    }
    // A copy that was under way when the last event arrived.
    broker.receive(ledger).await;
    summary.stalled(stall, campaign);
    summary.verdict(&ledger.verdict());
    summary.copies(broker.copies(ledger).await, B::DROPS_COPIES);
    let (dead, charged) = database.charges().await;
    summary.charges(dead, charged);
}

/// Asks again: the server may be away, and a pooled connection may be one that a fault broke.
async fn until_answered<T, E: std::fmt::Display>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < deadline, "the server does not answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The ids that are in both.
fn intersection(ids: &[uuid::Uuid], found: impl IntoIterator<Item = uuid::Uuid>) -> HashSet<uuid::Uuid> {
    let asked: HashSet<_> = ids.iter().copied().collect();
    found.into_iter().filter(|id| asked.contains(id)).collect()
}
