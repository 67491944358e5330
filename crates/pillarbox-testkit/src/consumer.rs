//! The consumer that tests kill (`src/bin/consumer.rs`), its instructions, and the check of its effects.

use std::{
    collections::HashMap,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use pillarbox::EventId;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Row};
use tokio::process::{Child, Command};

/// The timeout.
const PATIENCE: Duration = Duration::from_secs(120);

/// The consumer's instructions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub database: String,
    pub group: String,
    /// The stream or topic.
    pub topic: String,
    pub nats: Option<String>,
    pub kafka: Option<String>,
    /// The share of attempts that fail, and that panic.
    pub failing: f64,
    pub panicking: f64,
    /// The share of handlers that take `slow_ms`, after their effect. A kill then loses what was acknowledged
    /// too early.
    pub slow: f64,
    pub slow_ms: u64,
    /// The event that kills the process.
    pub deadly: Option<EventId>,
    pub attempts_max: u32,
    pub deaths_max: u32,
    pub backoff_ms: u64,
    /// JetStream's URL.
    pub ack_wait_ms: u64,
    /// Kafka's address.
    pub instance: Option<String>,
    pub session_timeout_ms: Option<u32>,
}

impl Plan {
    pub fn new(database: &str, topic: &str) -> Self {
        Self {
            database: database.to_owned(),
            group: "effects".to_owned(),
            topic: topic.to_owned(),
            nats: None,
            kafka: None,
            failing: 0.0,
            panicking: 0.0,
            slow: 0.002,
            slow_ms: 400,
            deadly: None,
            attempts_max: 50,
            deaths_max: 5,
            backoff_ms: 10,
            ack_wait_ms: 2_000,
            instance: None,
            session_timeout_ms: None,
        }
    }

    /// Starts the consumer with this plan.
    ///
    /// # Panics
    /// If it can't be started.
    pub fn start(&self, program: &Path) -> Child {
        let plan = serde_json::to_string(self).expect("a plan is JSON");
        Command::new(program)
            .arg(plan)
            .env(
                "RUST_LOG",
                std::env::var("RUST_LOG").unwrap_or_else(|_| "off".into()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the consumer starts")
    }
}

/// The effects of the events in the consumer's database.
pub struct Effects {
    pub pool: PgPool,
}

impl Effects {
    /// # Panics
    /// If the database can't be used.
    pub async fn create(database: &str) -> Self {
        let pool = PgPool::connect(database).await.expect("the database is there");
        sqlx::raw_sql(
            "create table effects (n bigserial primary key, key text not null, version bigint, event_id text not null)",
        )
        .execute(&pool)
        .await
        .expect("the table is made");
        pillarbox::Inbox::default()
            .migrate(&pool)
            .await
            .expect("the inbox is made");
        Self { pool }
    }

    pub async fn count(&self) -> i64 {
        sqlx::query_scalar("select count(*) from effects")
            .fetch_one(&self.pool)
            .await
            .expect("the effects can be counted")
    }

    /// Waits until there are this many.
    ///
    /// # Panics
    /// If there is no progress for too long.
    pub async fn reach(&self, wanted: i64) {
        let mut last = (self.count().await, Instant::now());
        while last.0 < wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = self.count().await;
            if now > last.0 {
                last = (now, Instant::now());
            }
            assert!(
                last.1.elapsed() < PATIENCE,
                "{now} of {wanted} effects, and no more come"
            );
        }
    }

    /// Checks that every event happened once, and the events of each key in order.
    ///
    /// # Panics
    /// If they did not.
    pub async fn assert_whole(&self, published: &[(EventId, String, i64)]) {
        let rows = sqlx::query("select key, version, event_id from effects order by n")
            .fetch_all(&self.pool)
            .await
            .expect("the effects can be read");
        let mut times: HashMap<EventId, usize> = HashMap::new();
        let mut last: HashMap<String, i64> = HashMap::new();
        let mut disorder = Vec::new();
        for row in &rows {
            let (key, version): (String, i64) = (row.get(0), row.get(1));
            *times.entry(row.get::<&str, _>(2).into()).or_default() += 1;
            let last = last.entry(key.clone()).or_default();
            if version != *last + 1 {
                disorder.push(format!("{key}: {version} after {last}"));
            }
            *last = version;
        }
        let lost = published
            .iter()
            .filter(|(id, ..)| !times.contains_key(id))
            .count();
        let doubled = times.values().filter(|times| **times > 1).count();
        let strangers = times.len() + lost - published.len();
        assert!(
            lost == 0 && doubled == 0 && strangers == 0 && disorder.is_empty(),
            "of {} events {lost} are lost, {doubled} happened twice, {strangers} are unknown; out of order: {} ({:?})",
            published.len(),
            disorder.len(),
            &disorder[..disorder.len().min(5)]
        );
    }
}

/// Events in the order of publishing: id, key, and a version from 1 for each key.
pub fn events(count: usize, keys: usize, seed: u64) -> Vec<(EventId, String, i64)> {
    use rand::{RngExt, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let mut versions = vec![0_i64; keys];
    (0..count)
        .map(|_| {
            let key = random.random_range(0..keys);
            versions[key] += 1;
            (EventId::new(), format!("k-{key}"), versions[key])
        })
        .collect()
}
