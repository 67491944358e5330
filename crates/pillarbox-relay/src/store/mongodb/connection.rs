//! The driver's client, the collections, and the server's clock.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures::TryStreamExt;
use mongodb::{
    Client, Collection, Cursor, Database,
    bson::{DateTime, Document, doc},
    error::Error,
    options::{
        ClientOptions, ConnectionString, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
    },
};
use pillarbox::{Limits, Outbox, enqueue::mongodb_place, table::Tables};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::error::{explain, misconfigured, silent};
use crate::{connect::DatabaseOptions, store::StoreError};

/// The change stream and people's questions beside the engine's work.
const CONNECTIONS_BESIDE: u32 = 2;

pub(super) struct Connection {
    address: ConnectionString,
    pub(super) tables: Tables,
    /// Kept, because it remembers the limits and what was written.
    pub(super) outbox: Outbox,
    connections_max: u32,
    connect_timeout: Duration,
    answer_timeout: Duration,
    opened: OnceCell<Collections>,
    count: AtomicU64,
}

/// The outbox's collections. What their documents hold stands in [`super::schema`].
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
    pub(super) notices: Collection<Document>,
    pub(super) notice_sends: Collection<Document>,
    pub(super) schedules: Collection<Document>,
    pub(super) pressure: Collection<Document>,
    pub(super) keys: Collection<Document>,
    pub(super) meta: Collection<Document>,
}

impl Collections {
    /// Each by what it is called in [`super::schema`]; the one that tells the version last.
    pub(super) fn all(&self) -> [(&'static str, &Collection<Document>); 12] {
        [
            ("events", &self.events),
            ("parked", &self.parked),
            ("lanes", &self.lanes),
            ("relays", &self.relays),
            ("dead", &self.dead),
            ("recoveries", &self.recoveries),
            ("notices", &self.notices),
            ("notice_sends", &self.notice_sends),
            ("schedules", &self.schedules),
            ("pressure", &self.pressure),
            ("keys", &self.keys),
            ("meta", &self.meta),
        ]
    }
}

/// The collections' names as configured, in the same order.
pub(super) fn names(tables: &Tables) -> Vec<(&'static str, String)> {
    let beside = [
        "parked",
        "lanes",
        "relays",
        "dead",
        "recoveries",
        "notices",
        "notice_sends",
        "schedules",
        "pressure",
        "keys",
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
        // The driver's words may repeat the address, and with it the password.
        let address = ConnectionString::parse(&options.url).map_err(|_| {
            misconfigured("MongoDB's address can't be read: use mongodb://user@host/database?replicaSet=name")
        })?;
        let default = address.default_database.as_deref();
        let place = |name| mongodb_place(name, default).map(|(database, _)| database);
        match (place(options.tables.name()), place(options.tables.dead_name())) {
            (Some(events), Some(dead)) if events == dead => {}
            (Some(_), Some(_)) => {
                return Err(misconfigured(
                    "the dead letters are to be in another database than the events, and MongoDB can't look them up \
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
        })
    }

    /// The collections. Connects to nothing; an address of the kind mongodb+srv is looked up.
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
        // Whatever the address says: a delivery that only one node knows may be forgotten, and so may what it has read.
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.read_concern = Some(ReadConcern::majority());
        options.write_concern = Some(durable());
        Client::with_options(options)
    }

    fn collections_of(&self, client: Client) -> Collections {
        let default = self.address.default_database.as_deref();
        let collection = |name: &str| match mongodb_place(name, default) {
            Some((database, name)) => client.database(database).collection(name),
            // `open` has refused this.
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
            notices: beside("notices"),
            notice_sends: beside("notice_sends"),
            schedules: beside("schedules"),
            pressure: beside("pressure"),
            keys: beside("keys"),
            meta: beside("meta"),
            client,
        }
    }

    /// One command. Counted, no longer than the longest answer, and with its error in words.
    pub(super) async fn run<T>(
        &self,
        command: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        self.counted(1);
        self.uncounted(command).await
    }

    /// The same for what sends nothing.
    pub(super) async fn uncounted<T>(
        &self,
        command: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.answer_timeout, command.into_future()).await {
            Ok(answer) => answer.map_err(|error| self.error(&error)),
            Err(_) => Err(silent()),
        }
    }

    /// Everything a `find` or an `aggregate` gives.
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
            .map_err(|_| misconfigured("MongoDB does not tell its time: is this MongoDB?"))
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

/// On the disks of a majority.
pub(super) fn durable() -> WriteConcern {
    WriteConcern::builder()
        .w(mongodb::options::Acknowledgment::Majority)
        .journal(true)
        .build()
}
