//! Why an event was not written.

use std::time::Duration;

use thiserror::Error;

use crate::{check::CheckError, pressure::Pressure};

/// What the database's own library said: `sqlx::Error`, `tokio_postgres::Error`, `diesel::result::Error` or
/// `mongodb::error::Error`. `downcast_ref` gives it back, for instance to see whether the whole transaction may be tried
/// again.
pub type DatabaseError = Box<dyn std::error::Error + Send + Sync>;

/// Why an event was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// Refused before anything was sent to the database: the transaction is as it was.
    #[error("event {index} was refused: {problem}")]
    Refused {
        /// Which of the events given, from 0.
        index: usize,
        /// What is wrong with it.
        #[source]
        problem: CheckError,
    },
    /// Too much waits to be delivered. Nothing was written, and the transaction is as it was: do without the event, or roll
    /// back and try again.
    #[error(
        "the outbox takes no more events of class {class}: {pending} wait, {limit} may. Try again in {:.1} s",
        retry_after.as_secs_f64()
    )]
    Busy {
        /// The class of topics, as the relay's configuration names it.
        class: String,
        /// How many of its events wait to be delivered.
        pending: u64,
        /// How many may.
        limit: u64,
        /// How long the oldest of them has waited, where it is known.
        oldest: Option<Duration>,
        /// When to try again.
        retry_after: Duration,
    },
    /// Another transaction has written this version of the aggregate. On PostgreSQL and MongoDB this one can't go on: roll back,
    /// read the aggregate again and try again.
    #[error(
        "version {version} of {aggregate_type} {aggregate_id} is taken: another transaction has written it. Roll back, read it again and try again"
    )]
    VersionTaken {
        /// The aggregate's type.
        aggregate_type: String,
        /// The aggregate's id.
        aggregate_id: String,
        /// The version that both wrote.
        version: i64,
        /// What the database said.
        #[source]
        source: DatabaseError,
    },
    /// The outbox is not there, or is of another version.
    #[error("there is no table {table} of this version: run `pillarbox migrate` on this database first")]
    NotMigrated {
        /// The table's name, as configured.
        table: String,
        /// What the database said, where it said something.
        #[source]
        source: Option<DatabaseError>,
    },
    /// Nothing was written: an event outside the transaction that causes it could be lost, or tell what never happened.
    #[error(
        "there is no open transaction: begin one (`start_transaction`, diesel: `transaction`) before the application's own writes"
    )]
    NoTransaction,
    /// MongoDB: neither the address nor the table names a database.
    #[error(
        "nothing says in which database the outbox is: name it in the address (`mongodb://host/shop`) or before the table (`shop.outbox_events`)"
    )]
    NoDatabase,
    /// The database's own error: see [`DatabaseError`].
    #[error("the database refused the event")]
    Database(#[source] DatabaseError),
}

impl EnqueueError {
    /// What the pressure says, where it refuses.
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
