//! The code that PostgreSQL and SQLite share: everything that is not on the path of each event.
//!
//! A statement is written once, in `sql/`, if the dialects allow it. [`Dialect::complete`] fills in the parts that
//! differ. A database provides a way to run statements (`SqlDatabase`) and to read rows (`SqlRow`).
//! `Argument` is a parameter of a statement. Each database has its own code for discovery, settling, the side
//! table and the lanes.

/// A list of `Argument`s.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::sql::Argument::from($value)),*] };
}

pub(super) mod admin;
mod dead;
mod dialect;
mod event_log;
pub(super) mod pressure;
mod records;
mod relays;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{EventId, table::Tables};

pub(super) use self::dead::DeadLetterStore;
pub use self::dialect::Dialect;
pub(super) use self::event_log::{append as append_to_log, some_failures, with_delivery};
pub(super) use self::relays::troubles;
use super::StoreError;
use crate::event::Seq;

/// A statement that contains the names of the tables.
pub(super) type Sql = Arc<str>;

/// A value for a statement.
#[derive(Debug, Clone)]
pub(super) enum Argument {
    Integer(Option<i64>),
    Real(f64),
    Text(Option<String>),
    /// For `{in …}`.
    Integers(Vec<i64>),
    /// For `{in …}`. `None` is null.
    Texts(Option<Vec<String>>),
}

/// A database that runs the shared statements.
#[async_trait]
pub(super) trait SqlDatabase: Send + Sync + 'static {
    type Row: SqlRow;
    type Tx: Send;
    const DIALECT: Dialect;

    fn tables(&self) -> &Tables;

    /// Runs a read-only statement.
    async fn query(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<Self::Row>, StoreError>;

    /// The same for readers of the event log that follow it.
    async fn query_log(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<Self::Row>, StoreError>;

    /// The same for people, who may ask for much. However many ask, the relay and the readers of the event log have
    /// connections left.
    async fn browse(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<Self::Row>, StoreError>;

    /// Readers of the event log have seen this position. It must not be used again.
    fn handed_out(&self, position: i64);

    /// Runs a statement that may write, in its own transaction.
    async fn execute(&self, sql: Sql, arguments: Vec<Argument>) -> Result<Vec<Self::Row>, StoreError>;

    /// Begins a transaction that writes.
    async fn begin_tx(&self) -> Result<Self::Tx, StoreError>;

    async fn execute_in(
        &self,
        tx: &mut Self::Tx,
        sql: Sql,
        arguments: Vec<Argument>,
    ) -> Result<Vec<Self::Row>, StoreError>;

    async fn commit_tx(&self, tx: Self::Tx) -> Result<(), StoreError>;

    fn row_error(&self, error: sqlx::Error) -> StoreError;

    /// Fills in the parts that this database's own statements share.
    fn complete_own(sql: &str) -> String {
        sql.to_owned()
    }

    /// A statement in this database's dialect, with its table names.
    fn statement(&self, sql: &str) -> Sql {
        let sql = Self::DIALECT.complete(&Self::complete_own(sql));
        // A table name has only letters, digits, underscores and a dot.
        let sql = sql.replace("{table_name}", self.tables().name());
        self.tables().render(&sql).into()
    }

    /// Reads every row.
    fn read_rows<T>(
        &self,
        rows: &[Self::Row],
        read: impl FnMut(&Self::Row) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, StoreError>
    where
        Self: Sized,
    {
        let read: Result<Vec<T>, sqlx::Error> = rows.iter().map(read).collect();
        read.map_err(|error| self.row_error(error))
    }
}

/// A store that uses such a database.
pub(super) trait SqlStore: Send + Sync + 'static {
    type Database: SqlDatabase;

    fn database(&self) -> &Self::Database;
}

/// Columns of a row, by their index.
pub(super) trait SqlRow: Send + Sync {
    /// An integer of any width.
    fn optional_integer(&self, column: usize) -> Result<Option<i64>, sqlx::Error>;

    /// Bytes that are not UTF-8 are replaced.
    fn optional_text(&self, column: usize) -> Result<Option<String>, sqlx::Error>;

    /// `None` for bytes that are not UTF-8.
    fn exact_text(&self, column: usize) -> Result<Option<String>, sqlx::Error>;

    fn flag(&self, column: usize) -> Result<bool, sqlx::Error>;

    fn optional_real(&self, column: usize) -> Result<Option<f64>, sqlx::Error>;

    fn integer(&self, column: usize) -> Result<i64, sqlx::Error> {
        self.optional_integer(column).map(Option::unwrap_or_default)
    }

    fn count(&self, column: usize) -> Result<u64, sqlx::Error> {
        self.integer(column).map(|n| u64::try_from(n).unwrap_or_default())
    }

    fn optional_count(&self, column: usize) -> Result<Option<u64>, sqlx::Error> {
        let count = self.optional_integer(column)?;
        Ok(count.map(|n| u64::try_from(n).unwrap_or_default()))
    }

    /// From microseconds. A clock may step back, so a negative value becomes zero.
    fn optional_duration(&self, column: usize) -> Result<Option<Duration>, sqlx::Error> {
        self.optional_count(column)
            .map(|micros| micros.map(Duration::from_micros))
    }

    fn text(&self, column: usize) -> Result<String, sqlx::Error> {
        self.optional_text(column).map(Option::unwrap_or_default)
    }

    fn id(&self, column: usize) -> Result<EventId, sqlx::Error> {
        self.text(column).map(EventId::from)
    }

    fn optional_id(&self, column: usize) -> Result<Option<EventId>, sqlx::Error> {
        let text = self.optional_text(column)?;
        Ok(text.map(EventId::from))
    }

    /// From microseconds since 1970.
    fn optional_time(&self, column: usize) -> Result<Option<Timestamp>, sqlx::Error> {
        let micros = self.optional_integer(column)?;
        Ok(micros.map(|micros| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)))
    }

    fn time(&self, column: usize) -> Result<Timestamp, sqlx::Error> {
        self.optional_time(column).map(Option::unwrap_or_default)
    }
}

/// Reads the only row of a statement that always returns one.
fn one_row<D: SqlDatabase, T>(
    database: &D,
    rows: &[D::Row],
    read: impl FnOnce(&D::Row) -> Result<T, sqlx::Error>,
) -> Result<T, StoreError> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound);
    row.and_then(read).map_err(|error| database.row_error(error))
}

/// The events among these that are dead, for the check of aggregate versions.
pub(super) async fn dead_among(database: &impl SqlDatabase, seqs: &[Seq]) -> Result<Vec<Seq>, StoreError> {
    let sql = database.statement(include_str!("sql/versions/dead.sql"));
    let rows = database.query(sql, arguments!(seqs)).await?;
    database.read_rows(&rows, |row| row.integer(0))
}

/// A duration as a parameter of the statements: microseconds, at most a century.
pub(super) fn microseconds(duration: Duration) -> i64 {
    const CENTURY: u128 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(duration.as_micros().min(CENTURY)).unwrap_or(i64::MAX)
}

impl From<i64> for Argument {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::Integer(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self::Integer(Some(value.into()))
    }
}

impl From<usize> for Argument {
    fn from(value: usize) -> Self {
        Self::Integer(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<Option<i64>> for Argument {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<Option<Timestamp>> for Argument {
    fn from(value: Option<Timestamp>) -> Self {
        Self::Integer(value.map(Timestamp::as_microsecond))
    }
}

impl From<Timestamp> for Argument {
    fn from(value: Timestamp) -> Self {
        Self::Integer(Some(value.as_microsecond()))
    }
}

impl From<Duration> for Argument {
    fn from(value: Duration) -> Self {
        Self::Integer(Some(microseconds(value)))
    }
}

impl From<Option<Duration>> for Argument {
    fn from(value: Option<Duration>) -> Self {
        Self::Integer(value.map(microseconds))
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for Argument {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<&String> for Argument {
    fn from(value: &String) -> Self {
        Self::Text(Some(value.clone()))
    }
}

impl From<Option<&str>> for Argument {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

impl From<&Option<String>> for Argument {
    fn from(value: &Option<String>) -> Self {
        Self::Text(value.clone())
    }
}

impl From<&EventId> for Argument {
    fn from(value: &EventId) -> Self {
        Self::Text(Some(value.to_string()))
    }
}

impl From<&[i64]> for Argument {
    fn from(value: &[i64]) -> Self {
        Self::Integers(value.to_vec())
    }
}

/// A shared statement without a filter by id, before the table names are filled in.
#[doc(hidden)]
pub fn complete(dialect: Dialect, sql: &str) -> String {
    dialect.complete(&event_log::with_parts(&dead::with_parts(sql, false)))
}
