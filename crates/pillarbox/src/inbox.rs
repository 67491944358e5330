//! Remembers what a consumer has processed, in the consumer's own transaction. So an event that is delivered
//! at least once has its effect once.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")]
//! # async fn take(pool: sqlx::SqlitePool, id: pillarbox::EventId) -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::inbox::{self, Seen};
//!
//! let mut tx = pool.begin().await?;
//! if inbox::once(&mut tx, "billing", id).await? == Seen::First {
//!     sqlx::query("update accounts set balance = balance - 990").execute(&mut *tx).await?;
//! }
//! tx.commit().await?; // the effect and the memory of it, or neither
//! # Ok(()) }
//! ```
//!
//! `processed_events` has a row for each event and group. Old rows are deleted by [`Inbox::forget`]: keep
//! rows for longer than the broker can deliver an event again. `processed_versions` has a row for each entity
//! whose versions a group checked ([`Inbox::once_newer`]); these rows are kept. `processed_events_attempts`
//! records what [consumers](crate::consume) had begun when they died.

mod attempts;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::sync::Arc;
use std::{sync::LazyLock, time::Duration};

use thiserror::Error;

#[doc(hidden)]
pub use self::attempts::{Attempts, Begun, Place};

use crate::{
    enqueue::DatabaseError,
    event::EventId,
    table::{self, TableNameError},
    transaction::sealed,
};

/// The maximum length of a group's name in bytes.
const GROUP_BYTES_MAX: usize = 255;
/// The maximum length of an event's id in bytes.
const ID_BYTES_MAX: usize = 255;
/// The maximum length of an entity's id in bytes. It is in an index, and an index entry of PostgreSQL holds
/// 2,704 bytes including the group's name. A consumer puts the type before the id, and accepts up to 1,000
/// bytes of each.
const ENTITY_BYTES_MAX: usize = 2_048;

/// The inbox's tables. The default is `processed_events` and `processed_versions`.
///
/// Make one and keep it: it caches its statements. Clones share them.
#[derive(Debug, Clone)]
pub struct Inbox {
    processed: String,
    versions: String,
    /// The MongoDB database, if it is not the client's default.
    database: Option<String>,
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    statements: Arc<Statements>,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, Default)]
struct Statements {
    #[cfg(feature = "postgres")]
    postgres: postgres::Statements,
    #[cfg(feature = "sqlite")]
    sqlite: sqlite::Statements,
}

/// By table names.
impl PartialEq for Inbox {
    fn eq(&self, other: &Self) -> bool {
        (&self.processed, &self.versions, &self.database)
            == (&other.processed, &other.versions, &other.database)
    }
}

impl Eq for Inbox {}

/// The inbox for callers that name none.
static DEFAULT: LazyLock<Inbox> = LazyLock::new(Inbox::default);

/// Whether an event is new to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// It is new, and it is remembered if the transaction commits. Apply it.
    First,
    /// It was processed before. Do nothing.
    Before,
    /// The entity's version `last`, which is the same or newer, was processed before. Do nothing. This event
    /// is remembered, too.
    Stale {
        /// The newest version that was processed.
        last: i64,
    },
}

/// Why the inbox could not be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The inbox's tables do not exist.
    #[error("there is no table {table}: run `pillarbox migrate --inbox` on this database first")]
    NotMigrated {
        /// The missing table's name, as configured.
        table: String,
        /// The database's error, if there is one.
        #[source]
        source: Option<DatabaseError>,
    },
    /// A name is empty or too long.
    #[error("{what} has {bytes} bytes; 1 to {max} are allowed")]
    Length {
        /// Which name.
        what: &'static str,
        /// How many bytes it has.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// Nothing was written. An inbox entry outside the transaction of the effect could exist without the
    /// effect.
    #[error("the session has no open transaction: call `start_transaction` on it first")]
    NoTransaction,
    /// MongoDB: neither the address nor the inbox names a database.
    #[error(
        "the inbox has no database name: give it in the address (`mongodb://host/shop`) or with `Inbox::in_database`"
    )]
    NoDatabase,
    /// Nothing was committed.
    #[error(
        "a statement failed in this transaction and its error was ignored, so the transaction can't be committed: return the error, or run what may fail in a savepoint (`tx.begin()`)"
    )]
    Aborted,
    /// The database's own error: see [`DatabaseError`].
    #[error("the database returned an error for the inbox")]
    Database(#[source] DatabaseError),
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl From<sqlx::Error> for InboxError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

#[cfg(feature = "mongodb")]
impl From<::mongodb::error::Error> for InboxError {
    fn from(error: ::mongodb::error::Error) -> Self {
        Self::Database(error.into())
    }
}

/// One event to remember.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Sighting<'a> {
    pub group: &'a str,
    pub event_id: &'a EventId,
    pub entity_id: Option<&'a str>,
    pub version: Option<i64>,
    /// Refuse versions that are not newer than the last one.
    pub newer: bool,
}

/// A [`Transaction`](crate::Transaction) that can also write inbox entries: `sqlx::Transaction` of PostgreSQL
/// or SQLite, `mongodb::ClientSession`. This trait is sealed, too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that can remember what was processed"
)]
pub trait Remember: crate::Transaction + sealed::Remember {}

/// A database with an inbox: `sqlx::PgPool`, `sqlx::SqlitePool`, `mongodb::Database`.
pub trait Database: Attempts + Clone + Send + Sync + 'static {
    /// An open transaction of this database.
    type Transaction: Remember + 'static;

    /// Begins a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, InboxError>> + Send;
    /// Commits it, and returns an error if the database rolled it back instead.
    fn commit(&self, tx: Self::Transaction) -> impl Future<Output = Result<(), InboxError>> + Send;

    /// Creates the inbox's tables if they do not exist.
    #[doc(hidden)]
    fn migrate(&self, inbox: &Inbox) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// Checks that the tables exist.
    #[doc(hidden)]
    fn check(&self, inbox: &Inbox) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// Deletes a batch of older entries in its own transaction and returns their number.
    #[doc(hidden)]
    fn forget_some(
        &self,
        inbox: &Inbox,
        group: &str,
        older_than: Duration,
    ) -> impl Future<Output = Result<u64, InboxError>> + Send;
    /// The statements of the inbox for this database.
    #[doc(hidden)]
    fn place(&self, inbox: &Inbox) -> Inbox {
        inbox.clone()
    }
    /// Whether the error means that the database is away. Then the event is not charged.
    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool;
    /// Whether the database aborted this transaction in favour of another. A retry may well succeed.
    fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool;
}

/// [`Inbox::once`] of the default inbox.
pub async fn once<T: Remember>(
    tx: &mut T,
    group: &str,
    event_id: impl Into<EventId>,
) -> Result<Seen, InboxError> {
    DEFAULT.once(tx, group, event_id).await
}

/// [`Inbox::once_newer`] of the default inbox.
pub async fn once_newer<T: Remember>(
    tx: &mut T,
    group: &str,
    event_id: impl Into<EventId>,
    entity_id: &str,
    version: i64,
) -> Result<Seen, InboxError> {
    DEFAULT.once_newer(tx, group, event_id, entity_id, version).await
}

impl Default for Inbox {
    fn default() -> Self {
        Self::named("processed_events", "processed_versions")
    }
}

impl Inbox {
    /// Uses other table names, each optionally after a schema and a dot.
    pub fn new(processed: &str, versions: &str) -> Result<Self, TableNameError> {
        table::check(processed)?;
        table::check(versions)?;
        Ok(Self::named(processed, versions))
    }

    fn named(processed: &str, versions: &str) -> Self {
        Self {
            processed: processed.to_owned(),
            versions: versions.to_owned(),
            database: None,
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            statements: Arc::default(),
        }
    }

    /// Uses this MongoDB database in place of the client's default.
    pub fn in_database(mut self, name: impl Into<String>) -> Self {
        self.database = Some(name.into());
        self
    }

    /// Whether the group sees this event for the first time. It is remembered if and only if `tx` commits. If
    /// two transactions ask at the same time, the second one waits for the first, or (MongoDB) has to be
    /// retried.
    pub async fn once<T: Remember>(
        &self,
        tx: &mut T,
        group: &str,
        event_id: impl Into<EventId>,
    ) -> Result<Seen, InboxError> {
        let sighting = Sighting {
            group,
            event_id: &event_id.into(),
            entity_id: None,
            version: None,
            newer: false,
        };
        self.remember(tx, sighting).await
    }

    /// As [`once`](Self::once), but also refuses a version that is not newer than the last one that the group
    /// processed for this entity. Entities are distinguished by their ids alone: if a group processes several
    /// types whose ids may be equal, put the type before the id.
    pub async fn once_newer<T: Remember>(
        &self,
        tx: &mut T,
        group: &str,
        event_id: impl Into<EventId>,
        entity_id: &str,
        version: i64,
    ) -> Result<Seen, InboxError> {
        let sighting = Sighting {
            group,
            event_id: &event_id.into(),
            entity_id: Some(entity_id),
            version: Some(version),
            newer: true,
        };
        self.remember(tx, sighting).await
    }

    pub(crate) async fn remember<T: Remember>(
        &self,
        tx: &mut T,
        sighting: Sighting<'_>,
    ) -> Result<Seen, InboxError> {
        within("the group's name", sighting.group, GROUP_BYTES_MAX)?;
        if let Some(entity) = sighting.entity_id {
            within("the entity's id", entity, ENTITY_BYTES_MAX)?;
        }
        sighting
            .event_id
            .with_text(|id| within("the event's id", id, ID_BYTES_MAX))?;
        tx.remember(self, sighting).await
    }

    /// Records that the event has ended, if `tx` commits.
    #[doc(hidden)]
    pub async fn ended<T: Remember>(
        &self,
        tx: &mut T,
        group: &str,
        event_id: &EventId,
    ) -> Result<(), InboxError> {
        tx.ended(self, group, event_id).await
    }

    /// Creates the tables. Running it again changes nothing.
    pub async fn migrate<D: Database>(&self, database: &D) -> Result<(), InboxError> {
        database.migrate(&database.place(self)).await
    }

    /// Deletes what the group processed longer ago than this, in batches of a thousand. Each batch has its
    /// own transaction and waits for no lock. An event that is deleted here and delivered again is processed
    /// again. So `older_than` has to be longer than the broker keeps events, and longer than anybody would
    /// wait before replaying them.
    pub async fn forget<D: Database>(
        &self,
        database: &D,
        group: &str,
        older_than: Duration,
    ) -> Result<u64, InboxError> {
        let inbox = database.place(self);
        let mut forgotten = 0;
        loop {
            match database.forget_some(&inbox, group, older_than).await? {
                0 => return Ok(forgotten),
                some => forgotten += some,
            }
        }
    }

    /// The SQL that [`migrate`](Self::migrate) runs on PostgreSQL.
    #[cfg(feature = "postgres")]
    pub fn postgres_sql(&self) -> String {
        self.render::<sqlx::Postgres>(postgres::SCHEMA)
    }

    /// The SQL that [`migrate`](Self::migrate) runs on SQLite.
    #[cfg(feature = "sqlite")]
    pub fn sqlite_sql(&self) -> String {
        self.render::<sqlx::Sqlite>(sqlite::SCHEMA)
    }
}

fn within(what: &'static str, text: &str, max: usize) -> Result<(), InboxError> {
    match text.len() {
        bytes if bytes == 0 || bytes > max => Err(InboxError::Length { what, bytes, max }),
        _ => Ok(()),
    }
}

/// Looks for an error of type `E` in this one and its sources.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
fn find<'a, E: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E> {
    /// No error is nested deeper, unless its sources form a cycle.
    const DEPTH_MAX: usize = 32;
    std::iter::successors(Some(error), |error| error.source())
        .take(DEPTH_MAX)
        .find_map(|error| error.downcast_ref())
}
