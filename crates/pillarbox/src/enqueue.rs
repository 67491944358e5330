//! Into the application's own open transaction, and nowhere else: no other connection, no broker.

#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "mongodb")]
pub(crate) use self::mongodb::in_transaction as mongodb_in_transaction;
#[cfg(feature = "mongodb")]
#[doc(hidden)]
pub use self::mongodb::{document as mongodb_document, place as mongodb_place};
use jiff::Timestamp;
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub use postgres::channel as postgres_channel;
use thiserror::Error;

use crate::{check::CheckError, check::Limits, event::Event, table::Tables};

/// Writes events into an outbox. Cheap to make and to clone; the default is the table `outbox_events` and the default
/// limits.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    pub(crate) tables: Tables,
    limits: Limits,
}

/// Whether the event was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    New,
    /// An event with this id is there already; nothing was written.
    Duplicate,
}

/// What the database's own library said: `sqlx::Error` or `mongodb::error::Error`. `downcast_ref` gives it back, for
/// instance to see whether the whole transaction may be tried again.
pub type DatabaseError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// Refused before anything was sent to the database: the transaction is as it was.
    #[error("event {index} was refused: {problem}")]
    Refused {
        /// Which of the events given, from 0.
        index: usize,
        #[source]
        problem: CheckError,
    },
    #[error("there is no table {table}: run `pillarbox migrate` on this database first")]
    NotMigrated {
        table: String,
        #[source]
        source: Option<DatabaseError>,
    },
    /// Nothing was written: an event outside the transaction that causes it could be lost, or tell what never happened.
    #[error(
        "the session has no open transaction: call `start_transaction` on it before the application's own writes"
    )]
    NoTransaction,
    #[error(
        "nothing says in which database the outbox is: name it in the address (`mongodb://host/shop`) or before the table (`shop.outbox_events`)"
    )]
    NoDatabase,
    #[error("the database refused the event")]
    Database(#[source] DatabaseError),
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl From<sqlx::Error> for EnqueueError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

#[cfg(feature = "mongodb")]
impl From<::mongodb::error::Error> for EnqueueError {
    fn from(error: ::mongodb::error::Error) -> Self {
        Self::Database(error.into())
    }
}

/// An open transaction that can carry events: `sqlx::Transaction` of PostgreSQL or SQLite, `mongodb::ClientSession`.
pub trait Transaction: Send {
    #[doc(hidden)]
    fn insert(
        &mut self,
        outbox: &Outbox,
        events: &[Event],
    ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send;
}

impl Outbox {
    pub fn new(tables: Tables, limits: Limits) -> Self {
        Self { tables, limits }
    }

    /// Writes one event in `tx`. It is delivered if and only if `tx` commits.
    pub async fn enqueue<T: Transaction>(&self, tx: &mut T, event: &Event) -> Result<Enqueued, EnqueueError> {
        let enqueued = self.enqueue_all(tx, std::slice::from_ref(event)).await?;
        Ok(enqueued[0])
    }

    /// Writes many, in the order given, all or (refused) none. Of two with the same id the first counts.
    pub async fn enqueue_all<T: Transaction>(
        &self,
        tx: &mut T,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let now = Timestamp::now();
        for (index, event) in events.iter().enumerate() {
            self.limits
                .check(event, now)
                .map_err(|problem| EnqueueError::Refused { index, problem })?;
        }
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let enqueued = tx.insert(self, events).await?;
        assert_eq!(enqueued.len(), events.len(), "one answer for each event");
        Ok(enqueued)
    }

    /// An error of the database's library, in this crate's words.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn database_error(&self, missing_table: bool, error: sqlx::Error) -> EnqueueError {
        match missing_table {
            true => EnqueueError::NotMigrated {
                table: self.tables.name().to_owned(),
                source: Some(error.into()),
            },
            false => error.into(),
        }
    }
}
