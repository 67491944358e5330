//! The driver's client, the collections, and the server's clock.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use futures::TryStreamExt;
use mongodb::{
    Client, Collection, Cursor, Database,
    bson::{DateTime, Document, doc},
    error::Error,
    options::{
        ClientOptions, ConnectionString, ReadConcern, ReadPreference, SelectionCriteria, Tls, TlsOptions,
        WriteConcern,
    },
};
use pillarbox::{Limits, Outbox, enqueue::mongodb_place, table::Tables};
use serde::de::DeserializeOwned;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::error::{explain, misconfigured, silent};
use crate::{connect::DatabaseOptions, store::StoreError, tls};

/// For the change stream and people's queries, beside the engine's work.
const CONNECTIONS_BESIDE: u32 = 2;
/// People's share of all connections.
const BROWSING_MAX: usize = 2;

pub(super) struct Connection {
    address: ConnectionString,
    pub(super) tables: Tables,
    /// Kept because it remembers the limits and what was written.
    pub(super) outbox: Outbox,
    connections_max: u32,
    connect_timeout: Duration,
    answer_timeout: Duration,
    opened: OnceCell<Collections>,
    count: AtomicU64,
    browsing: Semaphore,
    /// The latest position of the event log that readers have seen.
    handed_out: AtomicI64,
}

/// The outbox's collections. [`super::schema`] describes their documents.
pub(super) struct Collections {
    pub(super) client: Client,
    /// Where the events are.
    pub(super) database: Database,
    pub(super) events: Collection<Document>,
    pub(super) parked: Collection<Document>,
    pub(super) lanes: Collection<Document>,
    pub(super) relays: Collection<Document>,
    pub(super) dead: Collection<Document>,
    pub(super) recoveries: Collection<Document>,
    pub(super) records: Collection<Document>,
    pub(super) pressure: Collection<Document>,
    pub(super) keys: Collection<Document>,
    pub(super) log: Collection<Document>,
    pub(super) meta: Collection<Document>,
    pub(super) retired: [Collection<Document>; RETIRED.len()],
}

/// Collections of earlier versions: `migrate` drops them.
pub(super) const RETIRED: [&str; 3] = ["notices", "notice_sends", "schedules"];

impl Collections {
    /// Each with its name in [`super::schema`]. The one with the version is last.
    pub(super) fn all(&self) -> [(&'static str, &Collection<Document>); 11] {
        [
            ("events", &self.events),
            ("parked", &self.parked),
            ("lanes", &self.lanes),
            ("relays", &self.relays),
            ("dead", &self.dead),
            ("recoveries", &self.recoveries),
            ("records", &self.records),
            ("pressure", &self.pressure),
            ("keys", &self.keys),
            ("log", &self.log),
            ("meta", &self.meta),
        ]
    }
}

/// The collections' configured names, in the same order.
pub(super) fn names(tables: &Tables) -> Vec<(&'static str, String)> {
    let beside = [
        "parked",
        "lanes",
        "relays",
        "dead",
        "recoveries",
        "records",
        "pressure",
        "keys",
        "log",
        "meta",
    ];
    let beside = beside.into_iter().map(|suffix| match suffix {
        "dead" => (suffix, tables.dead_name().to_owned()),
        _ => (suffix, tables.name_beside(suffix)),
    });
    std::iter::once(("events", tables.name().to_owned()))
        .chain(beside)
        .collect()
}

impl Connection {
    pub(super) fn open(options: &DatabaseOptions) -> Result<Self, StoreError> {
        // The driver's error may repeat the address, and with it the password.
        let address = ConnectionString::parse(&options.url).map_err(|_| {
            misconfigured("MongoDB's address can't be read: use mongodb://user@host/database?replicaSet=name")
        })?;
        if let Some(Tls::Enabled(files)) = &address.tls {
            check_files(files)?;
        }
        let default = address.default_database.as_deref();
        let place = |name| mongodb_place(name, default).map(|(database, _)| database);
        match (place(options.tables.name()), place(options.tables.dead_name())) {
            (Some(events), Some(dead)) if events == dead => {}
            (Some(_), Some(_)) => {
                return Err(misconfigured(
                    "the dead letters and the events are in different databases, and MongoDB can't look them up \
                     together: name the same one in `table_name` and `dlq_table_name`, or none",
                ));
            }
            _ => {
                return Err(misconfigured(
                    "MongoDB's address names no database: put it after the host, as in mongodb://host/shop",
                ));
            }
        }
        Ok(Self {
            address,
            tables: options.tables.clone(),
            outbox: Outbox::new(options.tables.clone(), Limits::default()),
            connections_max: options.connections_max,
            connect_timeout: options.connect_timeout,
            answer_timeout: options.answer_timeout,
            opened: OnceCell::new(),
            count: AtomicU64::new(0),
            browsing: Semaphore::new(BROWSING_MAX),
            handed_out: AtomicI64::new(0),
        })
    }

    pub(super) fn handed_out(&self) -> i64 {
        self.handed_out.load(Ordering::Relaxed)
    }

    pub(super) fn hands_out(&self, position: i64) {
        self.handed_out.fetch_max(position, Ordering::Relaxed);
    }

    /// A turn for a query of people, who may ask for much: connections are left to the relay. Never closed.
    pub(super) async fn browsing(&self) -> Option<SemaphorePermit<'_>> {
        self.browsing.acquire().await.ok()
    }

    /// The collections. Does not connect, but looks up an address of the kind mongodb+srv.
    pub(super) async fn collections(&self) -> Result<&Collections, StoreError> {
        self.opened
            .get_or_try_init(|| async {
                let client = self.client().await.map_err(|error| self.error(&error))?;
                Ok(self.collections_of(client))
            })
            .await
    }

    async fn client(&self) -> Result<Client, Error> {
        let mut options = ClientOptions::parse(self.address.clone()).await?;
        options.app_name.get_or_insert_with(|| "pillarbox".into());
        options.connect_timeout = Some(self.connect_timeout);
        options.server_selection_timeout = Some(self.connect_timeout);
        options.max_pool_size = Some(self.connections_max.saturating_add(CONNECTIONS_BESIDE));
        options.retry_writes = Some(true);
        options.retry_reads = Some(true);
        // Overrides the address: a settlement that only one node has may be lost, and so may an event read from it.
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.read_concern = Some(ReadConcern::majority());
        options.write_concern = Some(durable());
        Client::with_options(options)
    }

    fn collections_of(&self, client: Client) -> Collections {
        let default = self.address.default_database.as_deref();
        let collection = |name: &str| match mongodb_place(name, default) {
            Some((database, name)) => client.database(database).collection(name),
            // `open` refuses this case.
            None => client.database("pillarbox").collection(name),
        };
        let beside = |suffix: &str| collection(&self.tables.name_beside(suffix));
        let events: Collection<Document> = collection(self.tables.name());
        Collections {
            database: client.database(&events.namespace().db),
            events,
            parked: beside("parked"),
            lanes: beside("lanes"),
            relays: beside("relays"),
            dead: collection(self.tables.dead_name()),
            recoveries: beside("recoveries"),
            records: beside("records"),
            retired: RETIRED.map(beside),
            pressure: beside("pressure"),
            keys: beside("keys"),
            log: beside("log"),
            meta: beside("meta"),
            client,
        }
    }

    /// Runs one command: counts it, limits its time, and explains its error.
    pub(super) async fn run<T>(
        &self,
        command: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        self.counted(1);
        self.uncounted(command).await
    }

    /// The same for calls that send nothing.
    pub(super) async fn uncounted<T>(
        &self,
        command: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.answer_timeout, command.into_future()).await {
            Ok(answer) => answer.map_err(|error| self.error(&error)),
            Err(_) => Err(silent()),
        }
    }

    /// All results of a `find` or an `aggregate`.
    pub(super) async fn all<T>(
        &self,
        command: impl IntoFuture<Output = Result<Cursor<T>, Error>>,
    ) -> Result<Vec<T>, StoreError>
    where
        T: DeserializeOwned + Unpin + Send + Sync,
    {
        self.run(async { command.into_future().await?.try_collect().await })
            .await
    }

    /// The server's time. Inside a pipeline it is `$$NOW`.
    pub(super) async fn now(&self) -> Result<DateTime, StoreError> {
        let at = self.collections().await?;
        let hello = self.run(at.database.run_command(doc! { "hello": 1 })).await?;
        hello
            .get_datetime("localTime")
            .copied()
            .map_err(|_| misconfigured("MongoDB's answer has no time: is this MongoDB?"))
    }

    pub(super) fn counted(&self, commands: u64) {
        self.count.fetch_add(commands, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    pub(super) fn error(&self, error: &Error) -> StoreError {
        explain(error, self.tables.name())
    }
}

/// The driver ignores a file without a certificate, and does not name one that is missing.
fn check_files(files: &TlsOptions) -> Result<(), StoreError> {
    const NAMED: &str = "MongoDB's address";
    if let Some(ca) = &files.ca_file_path {
        tls::certificates_file(ca.clone(), NAMED)?;
    }
    if let Some(both) = &files.cert_key_file_path {
        tls::certificates_file(both.clone(), NAMED)?;
        tls::private_key_file(both.clone(), NAMED)?;
    }
    Ok(())
}

/// Written to the disks of a majority.
pub(super) fn durable() -> WriteConcern {
    WriteConcern::builder()
        .w(mongodb::options::Acknowledgment::Majority)
        .journal(true)
        .build()
}
