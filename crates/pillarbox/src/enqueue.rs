//! Into the application's own open transaction, and nowhere else: no other connection, no broker.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use jiff::Timestamp;
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub use postgres::channel as postgres_channel;
use sqlx::Transaction;
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

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// Refused before any SQL ran: the transaction is as it was.
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
        source: sqlx::Error,
    },
    #[error("the database refused the event")]
    Database(#[from] sqlx::Error),
}

/// A database whose transactions can carry events.
pub trait Database: sqlx::Database {
    #[doc(hidden)]
    fn insert(
        outbox: &Outbox,
        tx: &mut Transaction<'_, Self>,
        events: &[Event],
    ) -> impl Future<Output = Result<Vec<Enqueued>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn is_missing_table(error: &sqlx::Error) -> bool;
}

impl Outbox {
    pub fn new(tables: Tables, limits: Limits) -> Self {
        Self { tables, limits }
    }

    /// Writes one event in `tx`. It is delivered if and only if `tx` commits.
    pub async fn enqueue<DB: Database>(
        &self,
        tx: &mut Transaction<'_, DB>,
        event: &Event,
    ) -> Result<Enqueued, EnqueueError> {
        let enqueued = self.enqueue_all(tx, std::slice::from_ref(event)).await?;
        Ok(enqueued[0])
    }

    /// Writes many, in the order given, all or (refused) none. Of two with the same id the first counts.
    pub async fn enqueue_all<DB: Database>(
        &self,
        tx: &mut Transaction<'_, DB>,
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
        let enqueued = DB::insert(self, tx, events).await.map_err(|source| {
            if DB::is_missing_table(&source) {
                EnqueueError::NotMigrated {
                    table: self.tables.name().to_owned(),
                    source,
                }
            } else {
                EnqueueError::Database(source)
            }
        })?;
        assert_eq!(enqueued.len(), events.len(), "one answer for each event");
        Ok(enqueued)
    }
}
