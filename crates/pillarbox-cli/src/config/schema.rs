//! The keys of the configuration: their names, types, defaults and meanings. The JSON Schema is generated
//! from this file and those below it, and so are the tables in docs/CONFIGURATION.md: doc comments here
//! appear there. `x-default` describes a default that is not a fixed value.

mod backpressure;
mod delivery;
mod dlq;
mod event_log;
mod http;
mod layout;
mod publisher;
#[cfg(test)]
mod tables;
mod tracing;
mod validation;

use std::{collections::BTreeMap, net::SocketAddr};

use pillarbox_relay::driver;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    backpressure::{Backpressure, PressureClass},
    delivery::{AfterDeath, Envelope, Route, Shape, Sink, Storage, Stream, Topic, TopicSetting, WebhookSink},
    dlq::{Command, Dlq, Reprocess, Webhook},
    event_log::EventLog,
    http::{Http, Jwt, RateLimit, Role, Tls, Token},
    layout::{Layout, Word},
    publisher::{Claim, Publisher, RetryPolicy},
    tracing::Tracing,
    validation::{AggregateVersions, OnFailure, SchemaMissing, Validation, WhenAway},
};

/// A Pillarbox configuration file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Everything about the outbox.
    pub outbox: Outbox,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Outbox {
    /// The database that holds the outbox.
    pub database: Database,
    /// The table is one that your team already has: which column is what. See [ADOPT.md](ADOPT.md).
    pub layout: Option<Layout>,
    /// Where events go. Choose a name for each sink; routes refer to it. Without any sink, there is one with
    /// the name `stream`, at `http-stream:`.
    #[schemars(extend("x-default" = "one, `stream`"))]
    pub sinks: BTreeMap<String, Sink>,
    /// Which topics go to which sink. The first match wins. With one sink and no routes, everything goes to
    /// that sink. With several sinks, routes are required.
    pub routes: Vec<Route>,
    /// Streams that must exist at a NATS sink.
    pub streams: Vec<Stream>,
    /// Topics that must exist at a Kafka sink.
    pub topics: Vec<Topic>,
    /// How a relay reads events and publishes them.
    pub publisher: Publisher,
    /// Retries of events that fail because of themselves.
    pub retry_policy: RetryPolicy,
    /// Dead letters: how long they are kept, whom to notify, what to send again.
    pub dlq: Dlq,
    /// Checks that an event must pass before it is published.
    pub validation: Validation,
    /// What became of events: for history and for streams.
    pub event_log: EventLog,
    /// Limits on how many events may be pending.
    pub backpressure: Backpressure,
    /// Metrics, health checks, alerts and traces.
    pub monitoring: Monitoring,
    /// The HTTP server of `pillarbox run`.
    pub http: Http,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Database {
    #[schemars(extend("description" = database_urls()))]
    pub url: String,
    /// The outbox's table, or the one to adopt with `layout`, optionally after a schema (in MongoDB a database) and a dot. Letters, digits and
    /// underscores, up to 48. The names of the other tables begin with it.
    pub table_name: String,
    /// The dead letters' table.
    #[schemars(extend("x-default" = "`<table_name>_dead`"))]
    pub dlq_table_name: Option<String>,
    /// **Not built yet.** Leave it out.
    pub wal_table_name: Option<String>,
    /// Wake the relay by LISTEN and NOTIFY (PostgreSQL) or a change stream (MongoDB). Without it, polling
    /// finds the same events a little later.
    #[schemars(extend("x-default" = "true; false with `pooler: true`"))]
    pub notify: Option<bool>,
    /// The address is a transaction pooler such as PgBouncer, so the relay keeps nothing in a session. Can't
    /// be combined with `notify: true`.
    pub pooler: bool,
    /// How many connections a relay keeps at most for its work. On PostgreSQL, up to 3 more are for people and for readers
    /// of the event log.
    pub connections_max: u32,
    /// How long to wait for a connection.
    pub connect_timeout_ms: u64,
    /// How long to wait for the answer to a statement (PostgreSQL, MongoDB). Then the relay gives up the
    /// connection.
    pub answer_timeout_ms: u64,
    /// `pillarbox enqueue` refuses a larger payload. In the relay, an event with a larger payload becomes a
    /// dead letter.
    pub payload_bytes_max: u64,
    /// Each `aggregate_version` of an aggregate can exist only once. `migrate` creates a unique index (on
    /// PostgreSQL without blocking producers). If two transactions write the same version, the second is
    /// refused. A dead letter can then be replayed only under its own id.
    pub unique_versions: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Monitoring {
    /// Serve `/metrics` for Prometheus. [METRICS.md](METRICS.md) lists the metrics.
    pub enable_metrics: bool,
    /// The beginning of the metrics' names. Dots become underscores.
    pub metrics_prefix: String,
    /// Serve `/livez`, `/readyz` and `/healthz`.
    pub enable_health_checks: bool,
    /// A second address that serves only `/metrics`, `/livez`, `/readyz` and `/healthz`. It may be reachable
    /// from other machines: these answers contain names and counts, and no event.
    pub listen: Option<SocketAddr>,
    /// `/healthz` and `status` report a problem if the oldest undelivered event is older. 0: never.
    pub oldest_age_max_seconds: u64,
    /// The same if more events than this wait for a retry. 0: never.
    pub failed_events_max: u64,
    /// The same if a smaller share of the attempts of the last five minutes succeeded. 0: never.
    pub success_rate_min: f64,
    /// The same if this many more dead letters are open than five minutes ago. 0: never.
    pub dead_letters_growth_max: u64,
    /// How often the relay looks up a sample of the events that it delivered, at most 200, at sinks of the kind
    /// NATS and Kafka. See [the live audit](#the-live-audit). 0: never.
    pub audit_interval_seconds: u64,
    /// `/v1/scale` wants one relay more for each so many pending events.
    pub pending_per_relay: u64,
    /// The fewest relays that `/v1/scale` wants. At least 1: without a relay nobody would ask for more.
    pub relays_min: u16,
    /// The most relays that `/v1/scale` wants. There are 256 lanes, so more than 256 relays are of no use.
    pub relays_max: u16,
    /// If events die of a new cause, or more die of a known one, say so in the relay's log at level `error`
    /// (and at `info` when it is over). Without it the same line is a warning, and appears only with
    /// `dlq.dlq_notification_enabled`. The quiet periods of `dlq.notifications` apply. It uses no webhook or
    /// command.
    pub alert_on_dlq_events: bool,
    /// Spans of the relay, for OpenTelemetry.
    pub tracing: Tracing,
}

fn database_urls() -> String {
    let urls = driver::store_summaries();
    format!("{urls} Percent-encode special characters in a password.")
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

impl Default for Monitoring {
    fn default() -> Self {
        Self {
            enable_metrics: true,
            metrics_prefix: "outbox".into(),
            enable_health_checks: true,
            listen: None,
            oldest_age_max_seconds: 300,
            failed_events_max: 1_000,
            success_rate_min: 0.9,
            dead_letters_growth_max: 100,
            audit_interval_seconds: 60,
            pending_per_relay: 10_000,
            relays_min: 1,
            relays_max: 10,
            alert_on_dlq_events: false,
            tracing: Tracing::default(),
        }
    }
}
