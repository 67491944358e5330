//! Opens a store or a sink from an address in the configuration, with the [`driver`] of its scheme.

use std::{sync::Arc, time::Duration};

use pillarbox::table::Tables;

pub use crate::driver::address::redacted;
use crate::{
    adoption::Adoption,
    check::versions::AggregateVersions,
    dead::DeadLetters,
    driver::{self, address},
    event_log::EventLog,
    layout::Layout,
    notice::Notices,
    pressure::Gauge,
    reprocess::Schedules,
    sink::{Sink, SinkError, SinkErrorKind, StreamSpec, Streams, TopicSpec, webhook::WebhookOptions},
    store::{Admin, Store, StoreError, StoreErrorKind, records::Records},
};

/// A database with an outbox.
#[derive(Clone)]
pub struct DatabaseOptions {
    /// An address for one of [`driver::STORES`].
    pub url: String,
    pub tables: Tables,
    /// The table that the outbox serves, if it is not its own. The names in `tables` are then those beside it.
    pub layout: Option<Layout>,
    pub claim: Claim,
    /// Use LISTEN and NOTIFY (PostgreSQL). Off: the relay only polls.
    pub notify: bool,
    /// The address is a transaction pooler (PgBouncer): no session state may be used.
    pub pooler: bool,
    pub connections_max: u32,
    pub connect_timeout: Duration,
    /// How long a statement may take (PostgreSQL). A silent connection must not block the relay for ever.
    pub answer_timeout: Duration,
}

impl DatabaseOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tables: Tables::default(),
            layout: None,
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
    /// A relay locks the events themselves as they arrive (MongoDB). No order is kept beyond a batch.
    Rows,
}

#[derive(Clone)]
pub struct OpenStore {
    /// [`driver::About::kind`]
    pub kind: &'static str,
    pub store: Arc<dyn Store>,
    pub admin: Arc<dyn Admin>,
    pub dead_letters: Arc<dyn DeadLetters>,
    /// For [`Notices`] and [`Schedules`].
    pub records: Arc<dyn Records>,
    /// For the check of aggregate versions. `None`: this database does not support it.
    pub versions: Option<Arc<dyn AggregateVersions>>,
    /// The figures for producers. `None`: this database can't limit producers.
    pub gauge: Option<Arc<dyn Gauge>>,
    /// `None`: this database has no event log.
    pub event_log: Option<Arc<dyn EventLog>>,
    /// `None`: this database can't take over tables.
    pub adoption: Option<Arc<dyn Adoption>>,
}

impl OpenStore {
    /// For a store that implements everything in one type.
    pub fn new<S>(kind: &'static str, store: Arc<S>) -> Self
    where
        S: Store + Admin + DeadLetters + Records + AggregateVersions + Gauge,
    {
        Self {
            kind,
            store: store.clone(),
            admin: store.clone(),
            dead_letters: store.clone(),
            records: store.clone(),
            versions: Some(store.clone()),
            gauge: Some(store),
            event_log: None,
            adoption: None,
        }
    }

    pub fn with_event_log(self, event_log: Arc<dyn EventLog>) -> Self {
        Self {
            event_log: Some(event_log),
            ..self
        }
    }

    pub fn with_adoption(self, adoption: Arc<dyn Adoption>) -> Self {
        Self {
            adoption: Some(adoption),
            ..self
        }
    }

    /// The notices of this outbox.
    pub fn notices(&self) -> Notices {
        Notices::new(self.records.clone())
    }

    /// The runs of the schedules for dead letters.
    pub fn schedules(&self) -> Schedules {
        Schedules::new(self.records.clone())
    }

    /// For a configuration that requires checks of versions.
    pub fn require_versions(&self) -> Result<Arc<dyn AggregateVersions>, StoreError> {
        self.versions.clone().ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Misconfigured,
                format!(
                    "{} can't look up the versions of aggregates: leave out `outbox.validation.aggregate_versions` and \
                     `outbox.database.unique_versions`",
                    self.kind
                ),
            )
        })
    }
}

/// Opens a store without connecting. A database that is away is an error at the first use, and it may come back.
pub fn store(options: &DatabaseOptions) -> Result<OpenStore, StoreError> {
    let refused = |message: String| Err(StoreError::new(StoreErrorKind::Misconfigured, message));
    let Some(driver) = driver::store(&options.url) else {
        let (scheme, examples) = (address::scheme(&options.url), driver::store_examples());
        return refused(format!("`{scheme}:` is not a database. Use {examples}"));
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

/// A target of events.
#[derive(Clone)]
pub struct SinkOptions {
    /// An address for one of [`driver::SINKS`].
    pub url: String,
    /// The streams that must exist there (NATS).
    pub streams: Vec<StreamSpec>,
    /// The topics that must exist there (Kafka).
    pub topics: Vec<TopicSpec>,
    /// How long to wait for the acknowledgement of one event.
    pub publish_timeout: Duration,
    /// How requests are made (webhooks).
    pub webhook: WebhookOptions,
}

impl SinkOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            streams: Vec::new(),
            topics: Vec::new(),
            publish_timeout: Duration::from_secs(5),
            webhook: WebhookOptions::default(),
        }
    }

    /// Whether streams or topics must exist there.
    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty() || !self.topics.is_empty()
    }
}

#[derive(Clone)]
pub struct OpenSink {
    /// [`driver::About::kind`]
    pub kind: &'static str,
    pub sink: Arc<dyn Sink>,
    /// If the sink has streams that can be checked and created.
    pub streams: Option<Arc<dyn Streams>>,
}

impl OpenSink {
    pub fn new(kind: &'static str, sink: Arc<dyn Sink>) -> Self {
        Self {
            kind,
            sink,
            streams: None,
        }
    }
}

/// Opens a sink without waiting for a connection.
pub fn sink(options: &SinkOptions) -> Result<OpenSink, SinkError> {
    let refused = |message: String| Err(SinkError::new(SinkErrorKind::Misconfigured, message));
    let Some(driver) = driver::sink(&options.url) else {
        let (scheme, examples) = (address::scheme(&options.url), driver::sink_examples());
        return refused(format!("`{scheme}:` is not a sink. Use {examples}"));
    };
    match driver.open {
        Some(open) => open(options),
        None => refused(driver.about.missing()),
    }
}
