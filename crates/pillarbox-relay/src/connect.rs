//! From an address in the configuration to a store or a sink: the one place that knows them all.

mod address;

use std::{sync::Arc, time::Duration};

use pillarbox::table::Tables;

use self::address::scheme;
pub use self::address::{redacted, servers};

use crate::{
    check::versions::AggregateVersions,
    dead::DeadLetters,
    notice::Notices,
    pressure::Gauge,
    reprocess::Schedules,
    sink::{Sink, SinkError, SinkErrorKind, StreamSpec, Streams, TopicSpec},
    store::{Admin, Store, StoreError, StoreErrorKind},
};

/// A database with an outbox.
#[derive(Clone)]
pub struct DatabaseOptions {
    /// `postgres://…`, `mongodb://…` or `sqlite:…`.
    pub url: String,
    pub tables: Tables,
    pub claim: Claim,
    /// LISTEN and NOTIFY (PostgreSQL). Off: only the poll wakes the relay.
    pub notify: bool,
    /// The address is a transaction pooler (PgBouncer): nothing may be kept in a session.
    pub pooler: bool,
    pub connections_max: u32,
    pub connect_timeout: Duration,
    /// How long a statement may take (PostgreSQL). A connection that has gone silent must not hang the relay for ever.
    pub answer_timeout: Duration,
}

impl DatabaseOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tables: Tables::default(),
            claim: Claim::default(),
            notify: true,
            pooler: false,
            connections_max: 5,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
        }
    }
}

/// How relays share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claim {
    /// A relay leases lanes of keys: each key keeps its order.
    #[default]
    Lanes,
    /// A relay locks the events themselves, as they come (MongoDB). No order is kept beyond a batch.
    Rows,
}

#[derive(Clone)]
pub struct OpenStore {
    /// `postgres`, `mongodb`, `sqlite`.
    pub kind: &'static str,
    pub store: Arc<dyn Store>,
    pub admin: Arc<dyn Admin>,
    pub dead_letters: Arc<dyn DeadLetters>,
    pub notices: Arc<dyn Notices>,
    pub schedules: Arc<dyn Schedules>,
    /// What the check of aggregates' versions asks.
    pub versions: Arc<dyn AggregateVersions>,
    /// Where producers see how much waits.
    pub gauge: Arc<dyn Gauge>,
}

/// Opens a store. It does not connect yet: a database that is away shows at the first use, and may come back.
pub fn store(options: &DatabaseOptions) -> Result<OpenStore, StoreError> {
    if options.claim == Claim::Rows && !matches!(scheme(&options.url), "mongodb" | "mongodb+srv") {
        return Err(StoreError::new(
            StoreErrorKind::Misconfigured,
            "`claim: rows` is built for MongoDB only: leave it out, and relays share the work by lanes, which keeps order",
        ));
    }
    match scheme(&options.url) {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let store = Arc::new(crate::store::postgres::PostgresStore::open(options)?);
            Ok(OpenStore {
                kind: "postgres",
                store: store.clone(),
                admin: store.clone(),
                dead_letters: store.clone(),
                notices: store.clone(),
                schedules: store.clone(),
                versions: store.clone(),
                gauge: store,
            })
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let store = Arc::new(crate::store::sqlite::SqliteStore::open(options)?);
            Ok(OpenStore {
                kind: "sqlite",
                store: store.clone(),
                admin: store.clone(),
                dead_letters: store.clone(),
                notices: store.clone(),
                schedules: store.clone(),
                versions: store.clone(),
                gauge: store,
            })
        }
        #[cfg(feature = "mongodb")]
        "mongodb" | "mongodb+srv" => {
            let store = Arc::new(crate::store::mongodb::MongoStore::open(options)?);
            let engine: Arc<dyn Store> = match options.claim {
                Claim::Lanes => store.clone(),
                Claim::Rows => Arc::new(crate::store::mongodb::RowsStore::new(store.clone())),
            };
            Ok(OpenStore {
                kind: "mongodb",
                store: engine,
                admin: store.clone(),
                dead_letters: store.clone(),
                notices: store.clone(),
                schedules: store.clone(),
                versions: store.clone(),
                gauge: store,
            })
        }
        other => {
            let unknown = || {
                format!(
                    "`{other}:` is no database this build knows. Use postgres://user@host/database, mongodb://host/database or sqlite:path"
                )
            };
            let message = built_without(other).unwrap_or_else(unknown);
            Err(StoreError::new(StoreErrorKind::Misconfigured, message))
        }
    }
}

/// A place that takes events.
#[derive(Clone)]
pub struct SinkOptions {
    /// `nats://host:port`, `kafka://host:port`, `http-stream:`, `stdout:` or `null:`.
    pub url: String,
    /// The streams that are to exist there (NATS).
    pub streams: Vec<StreamSpec>,
    /// The topics that are to exist there (Kafka).
    pub topics: Vec<TopicSpec>,
    /// How long to wait for the other side's word on one event.
    pub publish_timeout: Duration,
}

impl SinkOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            streams: Vec::new(),
            topics: Vec::new(),
            publish_timeout: Duration::from_secs(5),
        }
    }

    /// Whether anything is to exist there.
    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty() || !self.topics.is_empty()
    }
}

#[derive(Clone)]
pub struct OpenSink {
    /// `nats`, `kafka`, `http-stream`, `stdout`, `null`.
    pub kind: &'static str,
    pub sink: Arc<dyn Sink>,
    /// Where the sink has streams one can check and make.
    pub streams: Option<Arc<dyn Streams>>,
    /// Where the HTTP API has something to serve.
    #[cfg(feature = "http-stream")]
    pub http_stream: Option<Arc<crate::sink::http_stream::HttpStream>>,
}

impl OpenSink {
    fn plain(kind: &'static str, sink: Arc<dyn Sink>) -> Self {
        Self {
            kind,
            sink,
            streams: None,
            #[cfg(feature = "http-stream")]
            http_stream: None,
        }
    }
}

/// Opens a sink. It does not wait for a connection.
pub fn sink(options: &SinkOptions) -> Result<OpenSink, SinkError> {
    match scheme(&options.url) {
        #[cfg(feature = "nats")]
        "nats" | "tls" => {
            let sink = Arc::new(crate::sink::nats::NatsSink::open(options)?);
            Ok(OpenSink {
                streams: Some(sink.clone()),
                ..OpenSink::plain("nats", sink)
            })
        }
        #[cfg(feature = "kafka")]
        "kafka" => {
            let sink = Arc::new(crate::sink::kafka::KafkaSink::open(options)?);
            Ok(OpenSink {
                streams: Some(sink.clone()),
                ..OpenSink::plain("kafka", sink)
            })
        }
        #[cfg(feature = "http-stream")]
        "http-stream" => {
            let sink = Arc::new(crate::sink::http_stream::HttpStream::default());
            Ok(OpenSink {
                http_stream: Some(sink.clone()),
                ..OpenSink::plain("http-stream", sink)
            })
        }
        "stdout" => Ok(OpenSink::plain(
            "stdout",
            Arc::new(crate::sink::stdout::Stdout::default()),
        )),
        "null" => Ok(OpenSink::plain("null", Arc::new(crate::sink::null::Null))),
        other => {
            let unknown = || {
                format!(
                    "`{other}:` is no sink this build knows. Use nats://host:port, kafka://host:port, http-stream:, \
                     stdout: or null:"
                )
            };
            let message = built_without(other).unwrap_or_else(unknown);
            Err(SinkError::new(SinkErrorKind::Misconfigured, message))
        }
    }
}

/// Why an address that nothing above opened may be right all the same: it is known, and left out of this build.
fn built_without(scheme: &str) -> Option<String> {
    let (name, feature) = match scheme {
        "postgres" | "postgresql" => ("PostgreSQL", "postgres"),
        "sqlite" => ("SQLite", "sqlite"),
        "mongodb" | "mongodb+srv" => ("MongoDB", "mongodb"),
        "nats" | "tls" => ("NATS", "nats"),
        "kafka" => ("Kafka", "kafka"),
        "http-stream" => ("the HTTP stream", "http-stream"),
        _ => return None,
    };
    Some(format!("built without {name}: build with --features {feature}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_left_out_is_told_with_the_way_to_get_it() {
        assert_eq!(
            built_without("kafka").as_deref(),
            Some("built without Kafka: build with --features kafka")
        );
        for known in ["postgres", "sqlite", "mongodb", "nats", "tls", "http-stream"] {
            assert!(built_without(known).is_some(), "{known}");
        }
        assert_eq!(built_without("amqp"), None);
    }
}
