//! What a consumer has processed, remembered in the consumer's own transaction: so that what is delivered at least once
//! has its effect once.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")]
//! # async fn take(pool: sqlx::SqlitePool, id: uuid::Uuid) -> Result<(), Box<dyn std::error::Error>> {
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
//! `processed_events` has a row for each event and group, and is thinned out by age ([`Inbox::forget`]): keep rows for
//! longer than the broker can deliver an event again. `processed_versions` has a row for each entity whose versions a group
//! asked about ([`Inbox::once_newer`]), and stays. `processed_events_attempts` is for [consumers](crate::consume) that died:
//! what they had begun.

mod attempts;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::sync::Arc;
use std::{sync::LazyLock, time::Duration};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use sqlx::AssertSqlSafe;
use thiserror::Error;
use uuid::Uuid;

#[doc(hidden)]
pub use self::attempts::{Attempts, Begun, Place};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::statement::Statement;
use crate::{
    enqueue::DatabaseError,
    table::{self, TableNameError},
    transaction::sealed,
};

/// A group's name has at most this many bytes.
const GROUP_BYTES_MAX: usize = 255;
/// An entity's id has at most this many bytes: it stands in an index, and PostgreSQL's take 2,704 with the group's name. A
/// consumer puts the type before the id, and takes up to 1,000 of each.
const ENTITY_BYTES_MAX: usize = 2_048;

/// Where the memory lies. The default is `processed_events` and `processed_versions`.
///
/// Make one and keep it: it holds its statements ready. Clones share them.
#[derive(Debug, Clone)]
pub struct Inbox {
    processed: String,
    versions: String,
    /// MongoDB's, where the client's default is not meant.
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

/// By their names.
impl PartialEq for Inbox {
    fn eq(&self, other: &Self) -> bool {
        (&self.processed, &self.versions, &self.database)
            == (&other.processed, &other.versions, &other.database)
    }
}

impl Eq for Inbox {}

/// For those who name none.
static DEFAULT: LazyLock<Inbox> = LazyLock::new(Inbox::default);

/// Whether an event is new to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// It is, and now it is remembered, if the transaction commits. Apply it.
    First,
    /// It was processed before. Do nothing.
    Before,
    /// Its entity's version `last`, the same or a newer one, was processed before. Do nothing. It is remembered.
    Stale {
        /// The newest version that was processed.
        last: i64,
    },
}

/// Why the inbox could not be asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The inbox's tables are not there.
    #[error("there is no table {table}: run `pillarbox migrate --inbox` on this database first")]
    NotMigrated {
        /// The missing table's name, as configured.
        table: String,
        /// What the database said, where it said something.
        #[source]
        source: Option<DatabaseError>,
    },
    /// A name is empty or too long.
    #[error("{what} has {bytes} bytes; 1 to {max} are allowed")]
    Length {
        /// What.
        what: &'static str,
        /// How many bytes it has.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// Nothing was written: a memory outside the transaction of the effect could outlive it.
    #[error("the session has no open transaction: call `start_transaction` on it first")]
    NoTransaction,
    /// MongoDB: neither the address nor the inbox names a database.
    #[error(
        "nothing says in which database the inbox is: name it in the address (`mongodb://host/shop`) or with `Inbox::in_database`"
    )]
    NoDatabase,
    /// Nothing was committed.
    #[error(
        "a statement failed in this transaction and was passed over, so it can't be committed: return its error, or run what may fail in a savepoint (`tx.begin()`)"
    )]
    Aborted,
    /// The database's own error: see [`DatabaseError`].
    #[error("the database refused to look into the inbox")]
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

/// What is remembered of an event.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Sighting<'a> {
    pub group: &'a str,
    pub event_id: Uuid,
    pub entity_id: Option<&'a str>,
    pub version: Option<i64>,
    /// Refuse versions that are not newer than the last.
    pub newer: bool,
}

/// A [`Transaction`](crate::Transaction) that can remember as well as carry events: `sqlx::Transaction` of PostgreSQL or SQLite,
/// `mongodb::ClientSession`. It is sealed, too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that can remember what was processed"
)]
pub trait Remember: crate::Transaction + sealed::Remember {}

/// A database with an inbox in it: `sqlx::PgPool`, `sqlx::SqlitePool`, `mongodb::Database`.
pub trait Database: Attempts + Clone + Send + Sync + 'static {
    /// An open transaction of it.
    type Transaction: Remember + 'static;

    /// Begins a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, InboxError>> + Send;
    /// Commits it, and says so if the database rolled it back instead.
    fn commit(&self, tx: Self::Transaction) -> impl Future<Output = Result<(), InboxError>> + Send;

    /// Makes the inbox's tables where they are not there.
    #[doc(hidden)]
    fn migrate(&self, inbox: &Inbox) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// Whether they are there.
    #[doc(hidden)]
    fn check(&self, inbox: &Inbox) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// Forgets a batch of what is older, in a transaction of its own; says how many it was.
    #[doc(hidden)]
    fn forget_some(
        &self,
        inbox: &Inbox,
        group: &str,
        older_than: Duration,
    ) -> impl Future<Output = Result<u64, InboxError>> + Send;
    /// The inbox as it is called in this database.
    #[doc(hidden)]
    fn place(&self, inbox: &Inbox) -> Inbox {
        inbox.clone()
    }
    /// Whether the database is away: then nobody is to blame for what could not be done in it.
    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool;
    /// Whether the database gave up this transaction for another one: it may well succeed next time.
    fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool;
}

/// [`Inbox::once`] of the default inbox.
pub async fn once<T: Remember>(tx: &mut T, group: &str, event_id: Uuid) -> Result<Seen, InboxError> {
    DEFAULT.once(tx, group, event_id).await
}

/// [`Inbox::once_newer`] of the default inbox.
pub async fn once_newer<T: Remember>(
    tx: &mut T,
    group: &str,
    event_id: Uuid,
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
    /// With tables of other names, each optionally after a schema and a dot.
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

    /// In this database of MongoDB, and not in the one that the client's address names.
    pub fn in_database(mut self, name: impl Into<String>) -> Self {
        self.database = Some(name.into());
        self
    }

    /// Whether the group sees this event for the first time. Remembered if and only if `tx` commits; of two transactions
    /// that ask at the same time the second waits for the first, or (MongoDB) has to be tried again.
    pub async fn once<T: Remember>(
        &self,
        tx: &mut T,
        group: &str,
        event_id: Uuid,
    ) -> Result<Seen, InboxError> {
        let sighting = Sighting {
            group,
            event_id,
            entity_id: None,
            version: None,
            newer: false,
        };
        self.remember(tx, sighting).await
    }

    /// As [`once`](Self::once), and refuses a version that is not newer than the last one of this entity that the group
    /// processed. Entities are told apart by their ids alone: where a group meets several types of them whose ids may be the
    /// same, put the type before the id.
    pub async fn once_newer<T: Remember>(
        &self,
        tx: &mut T,
        group: &str,
        event_id: Uuid,
        entity_id: &str,
        version: i64,
    ) -> Result<Seen, InboxError> {
        let sighting = Sighting {
            group,
            event_id,
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
        tx.remember(self, sighting).await
    }

    /// What was begun has ended, if `tx` commits.
    #[doc(hidden)]
    pub async fn ended<T: Remember>(
        &self,
        tx: &mut T,
        group: &str,
        event_id: Uuid,
    ) -> Result<(), InboxError> {
        tx.ended(self, group, event_id).await
    }

    /// Makes the tables. Running it again changes nothing.
    pub async fn migrate<D: Database>(&self, database: &D) -> Result<(), InboxError> {
        database.migrate(&database.place(self)).await
    }

    /// Forgets what the group processed longer ago than this, a thousand at a time, each thousand in a transaction of its
    /// own that waits for nobody. What is forgotten and delivered again is processed again: `older_than` has to be longer
    /// than the broker keeps events, or than anybody would replay them.
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
        self.render(postgres::SCHEMA)
    }

    /// The SQL that [`migrate`](Self::migrate) runs on SQLite.
    #[cfg(feature = "sqlite")]
    pub fn sqlite_sql(&self) -> String {
        self.render(sqlite::SCHEMA)
    }

    #[cfg(feature = "postgres")]
    fn postgres(
        &self,
        statement: impl FnOnce(&postgres::Statements) -> &Statement,
    ) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(
            statement(&self.statements.postgres)
                .rendered(|sql| self.render(sql))
                .clone(),
        )
    }

    #[cfg(feature = "sqlite")]
    fn sqlite(&self, statement: impl FnOnce(&sqlite::Statements) -> &Statement) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(
            statement(&self.statements.sqlite)
                .rendered(|sql| self.render(sql))
                .clone(),
        )
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn render(&self, sql: &str) -> String {
        let index = self.processed.rsplit('.').next().unwrap_or(&self.processed);
        sql.replace("{processed}", &table::quoted(&self.processed))
            .replace("{versions}", &table::quoted(&self.versions))
            .replace("{attempts}", &table::quoted(&self.attempts()))
            .replace("{index}", &table::quoted(&format!("{index}_age")))
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn database_error(&self, missing_table: bool, error: sqlx::Error) -> InboxError {
        missing(&self.processed, missing_table, error)
    }

    /// The same of the table of attempts.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn attempts_error(&self, missing_table: bool, error: sqlx::Error) -> InboxError {
        missing(&self.attempts(), missing_table, error)
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn missing(table: &str, missing_table: bool, error: sqlx::Error) -> InboxError {
    match missing_table {
        true => InboxError::NotMigrated {
            table: table.to_owned(),
            source: Some(error.into()),
        },
        false => error.into(),
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
    /// Nobody nests deeper, except in a circle.
    const DEPTH_MAX: usize = 32;
    std::iter::successors(Some(error), |error| error.source())
        .take(DEPTH_MAX)
        .find_map(|error| error.downcast_ref())
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn is_connection_trouble(error: &sqlx::Error) -> bool {
    use sqlx::Error;
    matches!(
        error,
        Error::Io(_)
            | Error::Tls(_)
            | Error::Protocol(_)
            | Error::PoolTimedOut
            | Error::PoolClosed
            | Error::WorkerCrashed
            | Error::BeginFailed
    )
}
