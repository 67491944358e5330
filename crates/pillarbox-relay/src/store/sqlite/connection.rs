//! The file, the connections to it, and the meaning of SQLite's errors.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use pillarbox::{Limits, Outbox, table::Tables};
use sqlx::{
    ConnectOptions, Connection, Sqlite, SqlitePool, Transaction,
    sqlite::{
        SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
    },
};

use tokio::sync::Semaphore;

use super::{file::make_private, statements::Statements};
use crate::{
    connect::DatabaseOptions,
    store::{StoreError, StoreErrorKind},
};

/// How long a statement waits for another process's transaction to end.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Enough for the lanes' readers beside people's queries and the check of dead letters, which takes long with a
/// million of them.
const READERS_MAX: u32 = 4;
/// People's share of them: what they ask for must leave some to the relay.
const BROWSING_MAX: usize = 2;

pub(in crate::store) struct Connections {
    pub(super) read: SqlitePool,
    /// One connection: SQLite has one writer at a time, and waiting here is cheaper than waiting for the file's
    /// lock.
    write: SqlitePool,
    pub(super) statements: Statements,
    pub(super) tables: Tables,
    pub(super) outbox: Outbox,
    pub(super) path: PathBuf,
    count: AtomicU64,
    pub(super) browsing: Semaphore,
    /// The latest position of the event log that readers have seen.
    pub(super) handed_out: AtomicI64,
}

impl Connections {
    pub(super) fn new(options: &DatabaseOptions) -> Result<Self, StoreError> {
        if options.tables.name().contains('.') {
            return Err(misconfigured(
                "a table in SQLite has no schema before its name: leave out everything up to the dot",
            ));
        }
        let connect = connect_options(&options.url)?;
        let pool = |size: u32, connect: SqliteConnectOptions| {
            SqlitePoolOptions::new()
                .max_connections(size)
                .acquire_timeout(options.connect_timeout.max(BUSY_TIMEOUT))
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
                .connect_lazy_with(connect)
        };
        Ok(Self {
            read: pool(READERS_MAX, connect.clone()),
            // The mode is stored in the file. It is set here for a file whose tables were created by hand.
            write: pool(1, connect.clone().journal_mode(SqliteJournalMode::Wal)),
            statements: Statements::new(&options.tables),
            tables: options.tables.clone(),
            outbox: Outbox::new(options.tables.clone(), Limits::default()),
            path: connect.get_filename().to_owned(),
            count: AtomicU64::new(0),
            browsing: Semaphore::new(BROWSING_MAX),
            handed_out: AtomicI64::new(0),
        })
    }

    /// The only writing connection, for a statement that is its own transaction.
    pub(super) fn writer(&self) -> &SqlitePool {
        self.counted(1);
        &self.write
    }

    pub(super) fn reader(&self) -> &SqlitePool {
        self.counted(1);
        &self.read
    }

    /// A writing transaction. It takes the write lock at its start, because in SQLite a reader can't become a
    /// writer once another transaction has written.
    pub(super) async fn begin(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.counted(1);
        self.write
            .begin_with("begin immediate")
            .await
            .map_err(|e| self.error(e))
    }

    pub(super) async fn commit(&self, tx: Transaction<'static, Sqlite>) -> Result<(), StoreError> {
        self.counted(1);
        tx.commit().await.map_err(|e| self.error(e))
    }

    /// A connection that creates the file if there is none, readable only by its owner.
    pub(super) async fn create(&self) -> Result<SqliteConnection, StoreError> {
        make_private(&self.path);
        let options = (*self.write.connect_options()).clone().create_if_missing(true);
        SqliteConnection::connect_with(&options)
            .await
            .map_err(|e| self.error(e))
    }

    /// A connection outside the pools.
    pub(super) async fn watch(&self) -> Result<SqliteConnection, sqlx::Error> {
        SqliteConnection::connect_with(&self.read.connect_options()).await
    }

    pub(super) fn counted(&self, statements: u64) {
        self.count.fetch_add(statements, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn error(&self, error: sqlx::Error) -> StoreError {
        let (kind, text) = explain(&self.path, self.tables.name(), &error);
        StoreError::new(kind, text).with_source(error)
    }
}

/// Microseconds since 1970. Every process that shares the file is on this machine, so they all use the same clock.
pub(super) fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

pub(super) fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

fn connect_options(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|e| misconfigured("the database's address can't be read: use sqlite:path").with_source(e))?;
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(misconfigured(
            "an SQLite database in memory can't be shared with the application that writes the events: use sqlite:path",
        ));
    }
    if options.get_filename().as_os_str().is_empty() {
        return Err(misconfigured(
            "the database's address names no file: use sqlite:path",
        ));
    }
    Ok(options
        // Only `migrate` creates a file: a mistyped path must not become an empty database.
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        // In WAL mode, `normal` may lose the last commits when the power fails. A lost settlement causes a second
        // delivery, and events of `pillarbox enqueue` would be lost.
        .synchronous(SqliteSynchronous::Full)
        .disable_statement_logging())
}

fn misconfigured(text: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}

fn explain(path: &Path, table: &str, error: &sqlx::Error) -> (StoreErrorKind, String) {
    use StoreErrorKind::{Away, Misconfigured, NotMigrated, Refused};
    let file = path.display();
    let Some(database) = error.as_database_error() else {
        return match error {
            sqlx::Error::Configuration(_) => (Misconfigured, format!("{file} can't be opened")),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => (
                Refused,
                format!("{file} contains unexpected data in the outbox's tables"),
            ),
            _ => (Away, format!("{file} can't be reached")),
        };
    };
    let code: i32 = database.code().and_then(|code| code.parse().ok()).unwrap_or(0);
    // The low byte is the kind; the other bytes refine it.
    match code & 0xff {
        5 | 6 => (Away, format!("{file} is locked by another process's transaction")),
        10 => (Away, format!("{file} can't be read or written now")),
        13 => (Away, format!("the disk of {file} is full: make room")),
        14 if path
            .parent()
            .is_some_and(|folder| folder != Path::new("") && !folder.is_dir()) =>
        {
            (
                Misconfigured,
                format!("the folder of {file} does not exist: create it, or check the address"),
            )
        }
        14 if !path.exists() => (
            NotMigrated,
            format!("there is no database at {file}: run `pillarbox migrate` to make it"),
        ),
        14 | 3 | 8 | 23 => (
            Misconfigured,
            format!("{file} can't be opened for writing: check the rights on it and on its folder"),
        ),
        11 => (
            Misconfigured,
            format!("{file} is damaged: restore it from a backup"),
        ),
        26 => (
            Misconfigured,
            format!("{file} is not an SQLite database: check the address"),
        ),
        1 if database.message().starts_with("no such ") => (
            NotMigrated,
            format!("{file} has no outbox `{table}` of this version: run `pillarbox migrate`"),
        ),
        _ => (Refused, format!("{file} refused a statement")),
    }
}
