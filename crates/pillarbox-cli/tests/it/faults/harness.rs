//! The start of every test here: a database, a broker, a configuration and a ledger.

mod binary;
mod http;
mod kafka;
mod mongo;
mod producer;
mod receiver;
mod relay;

use std::{ops::Deref, sync::Arc};

use pillarbox::Event;
use pillarbox_testkit::{
    ledger::Ledger,
    servers::{self, Nats},
    wait,
};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};

pub(super) use pillarbox_testkit::wait::PATIENCE;

pub(super) use binary::Binary;
pub(super) use http::{get, healthz_until};
pub(super) use kafka::assert_whole_in;
pub(super) use mongo::{MongoLoad, MongoScene};
pub(super) use producer::{Load, Producer};
pub(super) use receiver::{messages, read_stream};
pub(super) use relay::Relay;

/// The stream for all events unless a test says otherwise.
pub(super) const STREAM: &str = "EVENTS";

/// The content of the configuration file.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub database: String,
    pub table: String,
    /// The preset of the table's layout, if Pillarbox did not create it.
    pub preset: Option<String>,
    pub sink: String,
    pub lease_ms: u64,
    pub publish_timeout_ms: u64,
    pub pooler: bool,
    pub window_events_max: u32,
    pub destination_outage_max_seconds: u64,
    /// A second NATS server, the sink `far`.
    pub far: Option<String>,
    /// YAML lists in one line.
    pub routes: String,
    pub streams: String,
    /// YAML maps in one line.
    pub validation: String,
    pub backpressure: String,
    pub dlq: String,
    pub monitoring: String,
    pub stall_after_seconds: u64,
}

impl Config {
    pub(super) fn new(database: &str, sink: &str) -> Self {
        Self {
            database: database.to_owned(),
            table: "outbox_events".into(),
            preset: None,
            sink: sink.to_owned(),
            lease_ms: 5_000,
            publish_timeout_ms: 5_000,
            pooler: false,
            window_events_max: 4_000,
            destination_outage_max_seconds: 86_400,
            far: None,
            routes: format!("[{{ topic: 'orders.>', sink: events, stream: {STREAM} }}]"),
            streams: format!("[{{ name: {STREAM}, subjects: ['orders.>'] }}]"),
            validation: "{}".into(),
            backpressure: "{}".into(),
            dlq: "{}".into(),
            monitoring: "{}".into(),
            stall_after_seconds: 60,
        }
    }

    fn yaml(&self) -> String {
        let far = self
            .far
            .as_ref()
            .map(|url| format!("    far: {{ url: '{url}' }}\n"));
        let layout = self
            .preset
            .as_ref()
            .map(|preset| format!("  layout: {{ preset: {preset} }}\n"));
        format!(
            "outbox:\n  database: {{ url: '{}', table_name: {}, pooler: {} }}\n{}  sinks:\n    events: {{ url: '{}', publish_timeout_ms: {} }}\n{}  \
             routes: {}\n  streams: {}\n  publisher: {{ lease_ms: {}, window_events_max: {}, destination_outage_max_seconds: {}, \
             stall_after_seconds: {} }}\n  \
             retry_policy: {{ default_base_delay_ms: 200, default_max_attempts: 50, default_max_delay_ms: 500 }}\n  validation: {}\n  \
             backpressure: {}\n  dlq: {}\n  monitoring: {}\n",
            self.database,
            self.table,
            self.pooler,
            layout.unwrap_or_default(),
            self.sink,
            self.publish_timeout_ms,
            far.unwrap_or_default(),
            self.routes,
            self.streams,
            self.lease_ms,
            self.window_events_max,
            self.destination_outage_max_seconds,
            self.stall_after_seconds,
            self.validation,
            self.backpressure,
            self.dlq,
            self.monitoring
        )
    }
}

/// The binary and its outbox in PostgreSQL.
pub(super) struct Scene {
    binary: Binary,
    pub ledger: Arc<Ledger>,
    /// The application's own connections to the database.
    pub pool: PgPool,
}

impl Deref for Scene {
    type Target = Binary;

    fn deref(&self) -> &Binary {
        &self.binary
    }
}

impl Scene {
    /// A new database on the shared server and a private NATS, with tables and streams. `None`: not
    /// installed.
    pub(super) async fn start(adjust: impl FnOnce(&mut Config)) -> Option<(Self, Nats)> {
        let postgres = servers::postgres().await?;
        let nats = Nats::start().await?;
        let mut config = Config::new(&postgres.database().await, &nats.url());
        adjust(&mut config);
        let scene = Self::with(config);
        scene.prepare().await;
        Some((scene, nats))
    }

    /// For private servers. Nothing is created on them yet.
    pub(super) fn with(config: Config) -> Self {
        let database = config.database.clone();
        Self::beside(config, &database)
    }

    /// For tests in which the application reaches the database by another address than the relay.
    pub(super) fn beside(config: Config, database: &str) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .acquire_timeout(PATIENCE)
            .connect_lazy(database)
            .unwrap();
        Self {
            binary: Binary::new(config),
            ledger: Arc::new(Ledger::new()),
            pool,
        }
    }

    /// Creates the tables, the streams and the application's own table.
    pub(super) async fn prepare(&self) {
        self.done(&["migrate"]).await;
        self.done(&["streams", "apply"]).await;
        self.make_counters().await;
    }

    async fn make_counters(&self) {
        sqlx::query("create table counters (key text primary key, n bigint not null)")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    /// Waits until every event is published or dead.
    pub(super) async fn settled(&self) {
        let sql = "select count(*) from outbox_events where status not in ('published', 'dead')";
        self.until(sql, |waiting| waiting == 0).await;
    }

    /// Runs the query until the number is as wanted.
    pub(super) async fn until(&self, sql: &str, wanted: impl Fn(i64) -> bool) -> i64 {
        wait::until_ok(async || {
            // If the server is being restarted, ask again.
            let found = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql.to_owned()))
                .fetch_one(&self.pool)
                .await;
            match found {
                Ok(number) if wanted(number) => Ok(number),
                other => Err(format!("{sql}: still {other:?}")),
            }
        })
        .await
    }

    /// Like [`until`](Self::until), but waits as long as the number keeps changing.
    pub(super) async fn moves_until(&self, sql: &str, wanted: impl Fn(i64) -> bool) {
        let mut now = self.count(sql).await;
        while !wanted(now) {
            let before = now;
            now = self.until(sql, |number| number != before).await;
        }
    }

    pub(super) async fn count(&self, sql: &str) -> i64 {
        self.until(sql, |_| true).await
    }

    /// Waits until the number of lanes of this relay is as wanted.
    pub(super) async fn lanes_of(&self, relay: &str, wanted: impl Fn(i64) -> bool) -> i64 {
        let sql = format!(
            "select count(*) from outbox_events_lanes l join outbox_events_relays r on r.id = l.owner
             where r.name = '{relay}'"
        );
        self.until(&sql, wanted).await
    }

    /// Checks that the stream contains every committed event once, in order, and nothing else.
    pub(super) async fn assert_whole(&self) {
        self.settled().await;
        read_stream(&self.config.sink, STREAM, &self.ledger).await;
        let verdict = self.ledger.verdict();
        assert!(verdict.is_whole() && verdict.duplicated == 0, "{verdict}");
        assert!(
            verdict.committed > 0,
            "no event was committed: the test proves nothing"
        );
    }
}

/// An event like those of the producers. `n` is its place in its key.
pub(super) fn event(key: &str, n: u64) -> Event {
    Event::to("orders.placed")
        .event_type("Placed")
        .aggregate("order", key)
        .header(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        .json(&serde_json::json!({ "n": n, "text": "x".repeat(200) }))
        .unwrap()
}
