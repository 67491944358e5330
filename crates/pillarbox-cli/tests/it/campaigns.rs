//! Overlapping faults on real servers: several relays of the real binary, many producers, and random faults
//! of everything that can fail, often several at once. When the time is over, all faults end, and the ledger
//! checks what was received.
//!
//! There is one campaign for each pair of a database and a broker.

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
    wait,
};
use tempfile::TempDir;
use tokio::time::Instant;

use self::{
    broker::{Broker, jetstream::JetStream, kafka::Kafka},
    clock::Clock,
    database::{Database, mongodb::MongoDb, postgres::Postgres, sqlite::Sqlite},
    relays::Relays,
};

/// The limit for everything that has no bound of its own.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait beyond the bound, so that a failure can say whether events were late or never arrived.
const LATE_MAX: Duration = Duration::from_secs(30);
/// How long faults run before a quiet time. Without quiet times, the next fault could free a relay that is
/// stuck.
const ROUND: Duration = Duration::from_secs(20);
/// Relays that run side by side.
const RELAYS: usize = 3;
/// The topic of the route. In Kafka it is also the topic.
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
    let clock = match B::CLOCK_STEPS {
        true => Clock::start(folder.path(), D::CLOCK_SECONDS_MAX),
        false => None,
    };
    let relays = Relays::new(folder.path(), &database, &broker, clock.as_ref()).await;
    relays.run_once(&["migrate"]).await;
    database.prepare().await;
    relays.start_all().await;

    let mut summary = Summary::new(&campaign, &format!("{} to {}", D::NAME, B::NAME));
    summary.versions = vec![database.version().await, broker.version().await];
    let not_covered = [D::NOT_COVERED, B::NOT_COVERED].concat();
    summary.not_covered = not_covered.into_iter().map(Into::into).collect();
    let stage = Stage {
        campaign: &campaign,
        database,
        broker,
        relays,
        clock,
        ledger: Arc::default(),
    };
    let mut left = campaign.budget();
    while !left.is_zero() && summary.broken.is_empty() {
        let time = left.min(ROUND);
        left -= time;
        stage.round(time, &mut summary).await;
    }
    stage.judge(&mut summary).await;
    stage.relays.stop_all(&mut summary).await;
    if !summary.broken.is_empty() {
        stage.relays.show_logs(&campaign);
    }
    summary.close();
}

struct Stage<'a, D, B> {
    campaign: &'a Campaign,
    database: D,
    broker: B,
    relays: Relays,
    clock: Option<Clock>,
    ledger: Arc<Ledger>,
}

impl<D: Database, B: Broker> Stage<'_, D, B> {
    /// Runs a storm and the quiet time after it.
    async fn round(&self, time: Duration, summary: &mut Summary) {
        let seed = self.campaign.own_seed().wrapping_add(summary.rounds);
        let mut storm = Storm::new(seed);
        self.relays.fail(&mut storm);
        self.database.fail(&mut storm);
        self.broker.fail(&mut storm, &self.ledger);
        if let Some(clock) = &self.clock {
            clock.fail(&mut storm);
        }
        let producing = self.database.produce(&self.ledger, seed, storm.over());
        let toll = storm.rage(time).await;
        let ended = tokio::time::timeout(PATIENCE, producing.join_all()).await;
        assert!(ended.is_ok(), "the producers did not end");
        let undecided = self.ledger.undecided();
        self.ledger.decide(&self.database.which_exist(&undecided).await);
        summary.add(&toll);
        let stall = self.everything_arrives(&toll).await;
        summary.stalled(stall, self.campaign);
    }

    /// Waits until every committed event was received, or until it is clearly too late. Returns the time
    /// since the last fault.
    async fn everything_arrives(&self, toll: &Toll) -> Duration {
        let grace = if self.campaign.is_short() {
            PATIENCE
        } else {
            LATE_MAX
        };
        let deadline = toll.ended + LIVENESS_BOUND + grace;
        loop {
            self.relays.revive().await;
            self.broker.receive(&self.ledger).await;
            let arrived = self.ledger.committed_and_seen() == self.ledger.committed_count();
            if arrived || Instant::now() > deadline {
                return toll.ended.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn judge(&self, summary: &mut Summary) {
        // The broker has the events; the relays may still have to settle them.
        let deadline = Instant::now() + LATE_MAX;
        while self.database.unsettled().await > 0 && Instant::now() < deadline {
            self.relays.revive().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // A copy may have been on its way when the last event arrived.
        self.broker.receive(&self.ledger).await;
        summary.verdict(&self.ledger.verdict(), self.database.unsettled().await);
        summary.copies(self.broker.copies(&self.ledger).await, B::DROPS_COPIES);
        let charges = self.database.charges().await;
        summary.charges(charges.dead, charges.charged, &charges.errors);
    }
}

/// Retries: the server may be away, or a fault may have broken the pooled connection.
async fn until_answered<T, E: std::fmt::Display>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    wait::until_ok_within(PATIENCE, async || {
        let answer = ask().await;
        answer.map_err(|error| format!("the server does not answer: {error}"))
    })
    .await
}

/// The ids that are in both lists.
fn intersection(
    ids: &[pillarbox::EventId],
    found: impl IntoIterator<Item = pillarbox::EventId>,
) -> HashSet<pillarbox::EventId> {
    let asked: HashSet<_> = ids.iter().cloned().collect();
    found.into_iter().filter(|id| asked.contains(id)).collect()
}
