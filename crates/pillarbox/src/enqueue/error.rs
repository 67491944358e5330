//! Why an event was not written.

use std::time::Duration;

use thiserror::Error;

use crate::{check::CheckError, pressure::Pressure};

/// The error of the database's own library: `sqlx::Error`, `tokio_postgres::Error`, `diesel::result::Error`
/// or `mongodb::error::Error`. `downcast_ref` returns it, for example to see whether the whole transaction
/// may be retried.
pub type DatabaseError = Box<dyn std::error::Error + Send + Sync>;

/// Why an event was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The event was refused before anything was sent to the database. The transaction is unchanged.
    #[error("event {index} was refused: {problem}")]
    Refused {
        /// The index of the event, from 0.
        index: usize,
        /// What is wrong with it.
        #[source]
        problem: CheckError,
    },
    /// Too many events are pending. Nothing was written, and the transaction is unchanged: continue without
    /// the event, or roll back and retry.
    #[error(
        "the outbox takes no more events of class {class}: {pending} are pending, the limit is {limit}. Try again in {:.1} s",
        retry_after.as_secs_f64()
    )]
    Busy {
        /// The class of topics, as the relay's configuration names it.
        class: String,
        /// How many of its events are pending.
        pending: u64,
        /// The hard limit.
        limit: u64,
        /// The age of the oldest pending event, if known.
        oldest: Option<Duration>,
        /// When to try again.
        retry_after: Duration,
    },
    /// Another transaction has written this version of the aggregate. On PostgreSQL and MongoDB this
    /// transaction can't continue: roll back, read the aggregate again and retry.
    #[error(
        "version {version} of {aggregate_type} {aggregate_id} is taken: another transaction has written it. Roll back, read the aggregate again and retry"
    )]
    VersionTaken {
        /// The aggregate's type.
        aggregate_type: String,
        /// The aggregate's id.
        aggregate_id: String,
        /// The version that both wrote.
        version: i64,
        /// The database's error.
        #[source]
        source: DatabaseError,
    },
    /// The outbox does not exist, or has another version.
    #[error("there is no table {table} of this version: run `pillarbox migrate` on this database first")]
    NotMigrated {
        /// The table's name, as configured.
        table: String,
        /// The database's error, if there is one.
        #[source]
        source: Option<DatabaseError>,
    },
    /// Nothing was written. An event outside the transaction that causes it could be lost, or could report
    /// something that never happened.
    #[error(
        "there is no open transaction: begin one (`start_transaction`, diesel: `transaction`) before the application's own writes"
    )]
    NoTransaction,
    /// MongoDB: neither the address nor the table names a database.
    #[error(
        "the outbox has no database name: give it in the address (`mongodb://host/shop`) or before the table (`shop.outbox_events`)"
    )]
    NoDatabase,
    /// The database's own error: see [`DatabaseError`].
    #[error("the database refused the event")]
    Database(#[source] DatabaseError),
}

impl EnqueueError {
    /// The error for a pressure that refuses.
    pub fn busy(pressure: &Pressure) -> Option<Self> {
        pressure.refused.then(|| Self::Busy {
            class: pressure.class.clone(),
            pending: pressure.pending,
            limit: pressure.hard.unwrap_or_default(),
            oldest: pressure.oldest,
            retry_after: pressure.retry_after,
        })
    }
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
