//! From an address in the configuration to a store or a sink, by the [`driver`] of its scheme.

use std::{sync::Arc, time::Duration};

use pillarbox::table::Tables;

pub use crate::driver::address::redacted;
use crate::{
    check::versions::AggregateVersions,
    dead::DeadLetters,
    driver::{self, address},
    notice::Notices,
    pressure::Gauge,
    reprocess::Schedules,
    sink::{Sink, SinkError, SinkErrorKind, StreamSpec, Streams, TopicSpec},
    store::{Admin, Store, StoreError, StoreErrorKind},
};

/// A database with an outbox.
#[derive(Clone)]
pub struct DatabaseOptions {
    /// An address that one of [`driver::STORES`] takes.
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
    /// [`driver::About::kind`]
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

impl OpenStore {
    /// Where one type does everything.
    pub fn new<S>(kind: &'static str, store: Arc<S>) -> Self
    where
        S: Store + Admin + DeadLetters + Notices + Schedules + AggregateVersions + Gauge,
    {
        Self {
            kind,
            store: store.clone(),
            admin: store.clone(),
            dead_letters: store.clone(),
            notices: store.clone(),
            schedules: store.clone(),
            versions: store.clone(),
            gauge: store,
        }
    }
}

/// Opens a store. It does not connect yet: a database that is away shows at the first use, and may come back.
pub fn store(options: &DatabaseOptions) -> Result<OpenStore, StoreError> {
    let refused = |message: String| Err(StoreError::new(StoreErrorKind::Misconfigured, message));
    let Some(driver) = driver::store(&options.url) else {
        let (scheme, examples) = (address::scheme(&options.url), driver::store_examples());
        return refused(format!("`{scheme}:` is no database. Use {examples}"));
    };
    if options.claim == Claim::Rows && !driver.claims_rows {
        let able = driver::STORES.iter().filter(|driver| driver.claims_rows);
        let names: Vec<&str> = able.map(|driver| driver.about.name).collect();
        return refused(format!(
            "`claim: rows` works with {} only: leave it out, and relays share the work by lanes, which keeps order",
            names.join(" and ")
        ));
    }
    match driver.open {
        Some(open) => open(options),
        None => refused(driver.about.missing()),
    }
}

/// A place that takes events.
#[derive(Clone)]
pub struct SinkOptions {
    /// An address that one of [`driver::SINKS`] takes.
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
    /// [`driver::About::kind`]
    pub kind: &'static str,
    pub sink: Arc<dyn Sink>,
    /// Where the sink has streams one can check and make.
    pub streams: Option<Arc<dyn Streams>>,
    /// Where the HTTP API has something to serve.
    #[cfg(feature = "http-stream")]
    pub http_stream: Option<Arc<crate::sink::http_stream::HttpStream>>,
}

impl OpenSink {
    pub fn new(kind: &'static str, sink: Arc<dyn Sink>) -> Self {
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
    let refused = |message: String| Err(SinkError::new(SinkErrorKind::Misconfigured, message));
    let Some(driver) = driver::sink(&options.url) else {
        let (scheme, examples) = (address::scheme(&options.url), driver::sink_examples());
        return refused(format!("`{scheme}:` is no sink. Use {examples}"));
    };
    match driver.open {
        Some(open) => open(options),
        None => refused(driver.about.missing()),
    }
}
