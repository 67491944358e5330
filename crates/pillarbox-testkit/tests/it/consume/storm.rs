//! Overlapping faults under consumers: their processes, their database, their broker and the network fail at
//! random. Each event must have its effect once, in order per key.

mod instance;
mod publisher;

use std::{collections::HashSet, sync::Arc, time::Duration};

use async_nats::jetstream;
use futures::TryStreamExt;
use pillarbox::EventId;
use pillarbox_testkit::{
    consumer::{Effects, Plan},
    ledger::Ledger,
    proxy::Proxy,
    servers::{Nats, Postgres, PostgresOptions},
    storm::{LIVENESS_BOUND, LinkFaults, Source, Storm, Summary, Toll, break_link},
    torture::Campaign,
};
use rand::RngExt;
use sqlx::postgres::PgPoolOptions;
use tokio::{sync::Mutex, time::Instant};

use self::{instance::Instance, publisher::Publisher};
use super::harness::stream;

const INSTANCES: usize = 3;
const STREAM: &str = "THINGS";
const SUBJECT: &str = "THINGS.changed";
/// How long faults run before a quiet time.
const ROUND: Duration = Duration::from_secs(20);
/// How long to wait beyond the bound, so that a failure can say whether events were late or never arrived.
const LATE_MAX: Duration = Duration::from_secs(30);
/// The same for a short run, which shares its machine with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

struct Stage {
    postgres: Arc<Mutex<Postgres>>,
    nats: Arc<Mutex<Nats>>,
    context: jetstream::Context,
    effects: Effects,
    instances: Vec<Arc<Mutex<Instance>>>,
    database_links: Vec<Arc<Proxy>>,
    broker_links: Vec<Arc<Proxy>>,
    publisher: Publisher,
    ledger: Arc<Ledger>,
}

/// Everything fails at once around consumers of JetStream with their inbox in PostgreSQL.
#[tokio::test(flavor = "multi_thread")]
async fn torture_storm_of_consumers() {
    let campaign = Campaign::begin("storm_of_consumers");
    let Some(stage) = Stage::new().await else { return };
    let mut summary = Summary::new(&campaign, "JetStream to a consumer's inbox");
    summary.versions = stage.versions().await;
    summary.not_covered = vec!["Consumers of Kafka in a storm (campaigns of their own kill them)".into()];
    let mut left = campaign.budget();
    while !left.is_zero() && summary.broken.is_empty() {
        let time = left.min(ROUND);
        left -= time;
        stage.round(time, &campaign, &mut summary).await;
    }
    stage.judge(&mut summary).await;
    for instance in &stage.instances {
        if !instance.lock().await.leave().await {
            summary.broken.push("a consumer did not stop when told to".into());
        }
    }
    summary.close();
}

impl Stage {
    async fn new() -> Option<Self> {
        let postgres = Postgres::start(PostgresOptions::default()).await?;
        let nats = Nats::start().await?;
        let url = postgres.database().await;
        let context = stream(&nats.url(), STREAM).await;
        let mut effects = Effects::create(&url).await;
        // A fault may break a connection, so use a pool that connects again.
        effects.pool = PgPoolOptions::new()
            .acquire_timeout(Duration::from_secs(10))
            .connect_lazy(&url)
            .unwrap();
        let ledger = Arc::new(Ledger::new());
        let mut stage = Self {
            publisher: Publisher::new(&nats.url(), &ledger).await,
            postgres: Arc::new(Mutex::new(postgres)),
            context,
            effects,
            instances: Vec::new(),
            database_links: Vec::new(),
            broker_links: Vec::new(),
            ledger,
            nats: Arc::new(Mutex::new(nats)),
        };
        for _ in 0..INSTANCES {
            let database = Proxy::in_front_of(&url).await;
            let broker_url = stage.nats.lock().await.url();
            let broker = Proxy::in_front_of(&broker_url).await;
            let plan = Plan {
                nats: Some(broker.through(&broker_url)),
                failing: 0.02,
                panicking: 0.005,
                ..Plan::new(&database.through(&url), STREAM)
            };
            stage.instances.push(Arc::new(Mutex::new(Instance::start(plan))));
            stage.database_links.push(Arc::new(database));
            stage.broker_links.push(Arc::new(broker));
        }
        Some(stage)
    }

    async fn versions(&self) -> Vec<String> {
        let version: String =
            sqlx::query_scalar("select split_part(current_setting('server_version'), ' ', 1)")
                .fetch_one(&self.effects.pool)
                .await
                .unwrap();
        let nats = self.publisher.server_version();
        vec![format!("PostgreSQL {version}"), format!("nats-server {nats}")]
    }

    async fn round(&self, time: Duration, campaign: &Campaign, summary: &mut Summary) {
        let seed = campaign.own_seed().wrapping_add(summary.rounds);
        let mut storm = Storm::new(seed);
        for instance in &self.instances {
            let instance = Arc::clone(instance);
            storm.add(|source| instance::come_and_go(instance, source));
        }
        for (links, name) in [
            (&self.database_links, "link to the database"),
            (&self.broker_links, "link to the broker"),
        ] {
            for link in links {
                let faults = LinkFaults {
                    name,
                    calm: 700..4_000,
                    length: 100..3_000,
                };
                let link = Arc::clone(link);
                storm.add(|source| break_link(link, faults, source));
            }
        }
        let (postgres, nats) = (Arc::clone(&self.postgres), Arc::clone(&self.nats));
        storm.add(|source| fail_database(postgres, source));
        storm.add(|source| fail_broker(nats, source));
        let over = storm.over();
        let (toll, ()) = tokio::join!(storm.rage(time), self.publisher.publish_on(seed, over));
        summary.add(&toll);
        let stall = self.everything_happens(&toll, campaign).await;
        summary.stalled(stall, campaign);
    }

    /// Waits until every event had its effect, or until it is clearly too late. Returns the time since the
    /// last fault.
    async fn everything_happens(&self, toll: &Toll, campaign: &Campaign) -> Duration {
        let grace = if campaign.is_short() { PATIENCE } else { LATE_MAX };
        let deadline = toll.ended + LIVENESS_BOUND + grace;
        loop {
            for instance in &self.instances {
                instance.lock().await.revive();
            }
            let count: Result<i64, _> = sqlx::query_scalar("select count(distinct event_id) from effects")
                .fetch_one(&self.effects.pool)
                .await;
            let happened = count.is_ok_and(|count| count as usize >= self.ledger.committed_count());
            if happened || Instant::now() > deadline {
                return toll.ended.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn judge(&self, summary: &mut Summary) {
        let happened: Vec<EventId> = sqlx::query_scalar("select event_id from effects order by n")
            .fetch_all(&self.effects.pool)
            .await
            .unwrap();
        for id in &happened {
            self.ledger.seen(id.clone());
        }
        let distinct: HashSet<_> = happened.iter().collect();
        summary.verdict(&self.ledger.verdict(), 0);
        summary.copies(happened.len() - distinct.len(), true);
        summary.charges(
            self.dead_letters().await,
            0,
            &["the consumers made dead letters".into()],
        );
    }

    /// The number of dead letters. They are in the same stream as the events.
    async fn dead_letters(&self) -> u64 {
        let stream = self.context.get_stream(STREAM).await.unwrap();
        let letters = stream
            .info_with_subjects(format!("{SUBJECT}.dead"))
            .await
            .unwrap();
        let letters: Vec<_> = letters.try_collect().await.unwrap();
        letters.iter().map(|(_, count)| *count as u64).sum()
    }
}

async fn fail_database(postgres: Arc<Mutex<Postgres>>, mut source: Source) {
    while source.next(2_000..6_000).await {
        let mut server = postgres.lock().await;
        match source.rng().random_range(0..3) {
            0 => {
                let _lasting = source.begin("database restarted");
                server.stop().await;
                source.last(0..1_000).await;
                server.start_again().await;
            }
            1 => {
                let _lasting = source.begin("database crashed");
                server.kill().await;
                source.last(0..1_000).await;
                server.start_again().await;
            }
            _ => {
                let _lasting = source.begin("database frozen");
                server.pause().await;
                source.last(200..4_000).await;
                server.resume().await;
            }
        }
    }
}

async fn fail_broker(nats: Arc<Mutex<Nats>>, mut source: Source) {
    while source.next(1_500..5_000).await {
        let mut server = nats.lock().await;
        match source.rng().random_range(0..3) {
            0 => {
                let _lasting = source.begin("broker killed");
                server.kill().await;
                source.last(0..2_000).await;
                server.start_again().await;
            }
            1 => {
                let _lasting = source.begin("broker restarted");
                server.stop().await;
                source.last(0..2_000).await;
                server.start_again().await;
            }
            _ => {
                let _lasting = source.begin("broker frozen");
                server.pause().await;
                source.last(200..4_000).await;
                server.resume().await;
            }
        }
    }
}
