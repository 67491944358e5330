//! The keys of the configuration: their names, types, defaults and meanings. The JSON Schema is made from this file and
//! those below it.

mod backpressure;
mod dlq;
mod validation;

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    backpressure::{Backpressure, PressureClass},
    dlq::{Command, Dlq, Reprocess, Webhook},
    validation::{AggregateVersions, OnFailure, SchemaMissing, Validation, WhenAway},
};

/// A Pillarbox configuration file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub outbox: Outbox,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Outbox {
    pub database: Database,
    /// Where events go, by the names the routes use. Without any: one called `stream`, at `http-stream:`.
    pub sinks: BTreeMap<String, Sink>,
    /// Which topics go where; the first match wins. Without any, everything goes to the one sink.
    pub routes: Vec<Route>,
    /// The streams that are to exist at a NATS sink.
    pub streams: Vec<Stream>,
    /// The topics that are to exist at a Kafka sink.
    pub topics: Vec<Topic>,
    pub publisher: Publisher,
    pub retry_policy: RetryPolicy,
    pub dlq: Dlq,
    pub validation: Validation,
    pub backpressure: Backpressure,
    pub monitoring: Monitoring,
    pub http: Http,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Database {
    /// `postgres://user@host/database`, `mongodb://host/database` or `sqlite:path`.
    pub url: String,
    /// The outbox's table, optionally after a schema and a dot.
    pub table_name: String,
    /// The dead letters' table; `<table_name>_dead` unless given.
    pub dlq_table_name: Option<String>,
    /// Not built yet: leave it out.
    pub wal_table_name: Option<String>,
    /// Wake the relay by LISTEN and NOTIFY (PostgreSQL). On, unless `pooler` is.
    pub notify: Option<bool>,
    /// The address is a transaction pooler such as PgBouncer: nothing may be kept in a session.
    pub pooler: bool,
    /// Connections a relay keeps at most.
    pub connections_max: u32,
    /// How long to wait for a connection.
    pub connect_timeout_ms: u64,
    /// How long to wait for the answer to a statement (PostgreSQL).
    pub answer_timeout_ms: u64,
    /// A larger payload is refused by `enqueue` and a dead letter in the relay.
    pub payload_bytes_max: u64,
    /// Each version of an aggregate once: `migrate` makes a unique index, and `enqueue` refuses who comes second.
    pub unique_versions: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sink {
    /// `nats://host:port`, `kafka://host:port`, `http-stream:`, `stdout:` or `null:`.
    pub url: String,
    /// How long to wait for the other side's word on one event.
    #[serde(default = "publish_timeout_ms")]
    pub publish_timeout_ms: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// A topic pattern as in NATS: `*` is one token, a last `>` all the rest.
    pub topic: String,
    /// A name under `sinks`.
    pub sink: String,
    /// The stream that must take the event; at a Kafka sink, the topic it goes to. An event that names one itself keeps its
    /// own.
    #[serde(default)]
    pub stream: Option<String>,
    /// What events look like there: `raw` (the payload is the body, the rest are headers), `cloudevents` (binary mode),
    /// `cloudevents_structured`, `pillarbox` (one JSON object with everything) or `debezium` (as its outbox event router).
    #[serde(default)]
    pub envelope: Envelope,
    /// The `source` of its CloudEvents, a URI or a path; `/<aggregate_type>` unless given.
    #[serde(default)]
    pub source: Option<String>,
    /// What becomes of a key after one of its events died: `skip` goes on with the next, `block` waits until somebody replays
    /// or discards the dead letter, `latest` goes on with the newest that waits, for topics that tell a state.
    #[serde(default)]
    pub after_death: AfterDeath,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Envelope {
    #[default]
    Raw,
    #[serde(rename = "cloudevents", alias = "cloudevents_binary")]
    CloudEvents,
    #[serde(rename = "cloudevents_structured")]
    CloudEventsStructured,
    Pillarbox,
    Debezium,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AfterDeath {
    #[default]
    #[serde(alias = "continue")]
    Skip,
    Block,
    Latest,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stream {
    pub name: String,
    pub subjects: Vec<String>,
    #[serde(default = "one")]
    pub replicas: u32,
    #[serde(default)]
    pub storage: Storage,
    /// How long the stream remembers an event's id to drop its copy.
    #[serde(default = "duplicate_window_seconds")]
    pub duplicate_window_seconds: u64,
    /// A name under `sinks`; may be left out where only one sink has streams.
    #[serde(default)]
    pub sink: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Storage {
    #[default]
    File,
    Memory,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topic {
    pub name: String,
    /// The brokers' choice unless given. More can be added later, none taken away.
    #[serde(default)]
    pub partitions: Option<u32>,
    /// How many brokers have a copy. The brokers' choice unless given.
    #[serde(default)]
    pub replication: Option<u32>,
    /// As Kafka names them: `retention.ms`, `cleanup.policy` and the like.
    #[serde(default)]
    pub settings: BTreeMap<String, TopicSetting>,
    /// A name under `sinks`; may be left out where there is one Kafka sink.
    #[serde(default)]
    pub sink: Option<String>,
}

/// Kafka takes text; people write numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum TopicSetting {
    Truth(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl JsonSchema for TopicSetting {
    fn schema_name() -> Cow<'static, str> {
        "TopicSetting".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

impl std::fmt::Display for TopicSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truth(value) => value.fmt(f),
            Self::Whole(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Publisher {
    /// The relay's name in `status`; the machine's name unless given.
    pub name: Option<String>,
    /// Events given to a sink at once.
    pub batch_size: u32,
    /// The longest wait between two looks at an idle database.
    pub poll_interval_ms: u64,
    /// Batches in flight at once.
    pub max_concurrent_publishers: u32,
    /// How relays share the work. `lanes`: each key keeps its order. `rows` (MongoDB): events are locked one by one, and
    /// no order is kept beyond a batch.
    pub claim: Claim,
    /// A crashed relay's lanes are taken over after this time.
    pub lease_ms: u64,
    /// Events read and not settled yet, at most.
    pub window_events_max: u32,
    /// The same, in bytes.
    pub window_bytes_max: u64,
    /// Not built yet: leave it off.
    pub enable_wal_integration: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Claim {
    #[default]
    Lanes,
    Rows,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetryPolicy {
    /// After so many failures of its own an event is dead.
    pub default_max_attempts: u32,
    /// The wait after the first failure.
    pub default_base_delay_ms: u64,
    /// The longest wait.
    pub default_max_delay_ms: u64,
    /// Each wait is so many times the one before.
    pub default_backoff_multiplier: f64,
    /// Vary the waits, so that events that failed together don't come back together.
    pub enable_jitter: bool,
    /// A wait is multiplied by something between these two.
    pub jitter_range: [f64; 2],
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Monitoring {
    /// Not built yet: leave it off.
    pub enable_metrics: bool,
    /// Not built yet: leave it as it is.
    pub metrics_prefix: String,
    /// Serve `/livez`, `/readyz` and `/healthz`.
    pub enable_health_checks: bool,
    /// Say it in the log, as an error, when events die of a new cause; also where notifications are off.
    pub alert_on_dlq_events: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Http {
    /// A loopback address and a port; port 0 takes a free one.
    pub listen: SocketAddr,
}

impl Sink {
    /// Where events go when nobody says: this process's own HTTP stream.
    pub(crate) fn embedded() -> Self {
        Self {
            url: "http-stream:".into(),
            publish_timeout_ms: publish_timeout_ms(),
        }
    }
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: "sqlite:pillarbox.db".into(),
            table_name: "outbox_events".into(),
            dlq_table_name: None,
            wal_table_name: None,
            notify: None,
            pooler: false,
            connections_max: 5,
            connect_timeout_ms: 5_000,
            answer_timeout_ms: 30_000,
            payload_bytes_max: 1024 * 1024,
            unique_versions: false,
        }
    }
}

impl Default for Publisher {
    fn default() -> Self {
        Self {
            name: None,
            batch_size: 200,
            poll_interval_ms: 200,
            max_concurrent_publishers: 5,
            claim: Claim::default(),
            lease_ms: 5_000,
            window_events_max: 4_000,
            window_bytes_max: 32 * 1024 * 1024,
            enable_wal_integration: false,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            default_max_attempts: 5,
            default_base_delay_ms: 1_000,
            default_max_delay_ms: 60_000,
            default_backoff_multiplier: 2.0,
            enable_jitter: true,
            jitter_range: [0.75, 1.25],
        }
    }
}

impl Default for Monitoring {
    fn default() -> Self {
        Self {
            enable_metrics: false,
            metrics_prefix: "outbox".into(),
            enable_health_checks: true,
            alert_on_dlq_events: false,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
        }
    }
}

fn publish_timeout_ms() -> u64 {
    5_000
}

fn duplicate_window_seconds() -> u64 {
    120
}

fn one() -> u32 {
    1
}
