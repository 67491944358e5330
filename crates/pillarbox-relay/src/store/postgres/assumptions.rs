//! What discovery assumes about the database, and what happens if an assumption fails.
//!
//! A low mark says that no event up to it is pending or will be. This relies on seqs that only grow and are taken
//! one at a time, after the xid of their transaction, in the table and the sequence for which the mark was
//! computed. `truncate`, `setval`, a sequence with a cache and a copy without its sequence break this. Events would
//! then be lost silently. So the assumptions are checked. If one fails, the low marks are lowered and every relay
//! starts over. That costs a scan, and finds everything that is pending.
//!
//! The positions of the event log have assumptions of their own: see [`log`].

mod log;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use pillarbox::table::Tables;
use sqlx::{Postgres, Row, Transaction, postgres::PgRow};
use tokio::time::Instant;

use self::log::LogFound;
use super::{
    connection::{Connection, Sql, arguments, statement},
    lanes_and_epochs, schema,
};
use crate::{
    event::Seq,
    store::{HeldLane, StoreError, StoreErrorKind},
};

/// How often a running relay checks again. A check is one small statement.
const AGAIN: Duration = Duration::from_secs(5);

pub(super) struct Assumptions {
    look: Sql,
    lock: Sql,
    reset: String,
    lower: Sql,
    log: log::Statements,
    looked_at: Mutex<Option<Instant>>,
}

/// The current state of the database.
struct Found {
    version: i32,
    moved: bool,
    /// The files of the table and of the sequence that the low marks belong to.
    files_marked: (Option<i64>, Option<i64>),
    files: (Option<i64>, Option<i64>),
    last_taken: Seq,
    highest_mark: Seq,
    cache: i64,
    encoding: String,
    log: LogFound,
}

impl Assumptions {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            look: statement(tables, include_str!("sql/assumptions/look.sql")),
            lock: statement(tables, include_str!("sql/assumptions/lock.sql")),
            reset: tables.render(include_str!("sql/assumptions/reset.sql")),
            lower: statement(tables, include_str!("sql/assumptions/lower.sql")),
            log: log::Statements::new(tables),
            looked_at: Mutex::default(),
        }
    }

    /// In a transaction that has found the outbox in the right version. `moved`: it was in another cluster before.
    pub(super) async fn check(
        &self,
        connection: &Connection,
        tx: &mut Transaction<'static, Postgres>,
        moved: bool,
    ) -> Result<(), StoreError> {
        self.looked();
        // Before the look: what is handed out meanwhile is no sign of a loss.
        let handed_out = connection.handed_out();
        let found = self.look(connection, tx).await?;
        found.usable(connection.tables())?;
        if found.broken(connection.tables()).is_none() && found.log.is_sound(handed_out) && !moved {
            return Ok(());
        }
        // Another relay may do the same. The second one finds that nothing is left to do.
        connection.rows_in(tx, &self.lock, arguments!()?).await?;
        let found = self.look(connection, tx).await?;
        if let Some(why) = found.broken(connection.tables()) {
            const READING: &str =
                "it is unknown which events are settled: reading the outbox again from its first event";
            match found.files_marked.0 {
                Some(_) => tracing::warn!(why, "{READING}"),
                None => tracing::info!(why, "{READING}"),
            }
            connection.script_in(tx, self.reset.clone()).await?;
        }
        // After the lanes, as in a settlement, so that the two never wait for each other.
        self.log.mend(connection, tx, &found.log, handed_out, moved).await
    }

    /// The same check for a running relay, unless the last check is recent.
    pub(super) async fn check_again(&self, connection: &Connection) -> Result<(), StoreError> {
        let due = |at: &Option<Instant>| at.is_none_or(|at| at.elapsed() >= AGAIN);
        if !due(&self.looked_at.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        self.check_now(connection).await
    }

    /// The same, however recent the last check is.
    pub(super) async fn check_now(&self, connection: &Connection) -> Result<(), StoreError> {
        self.looked();
        let handed_out = connection.handed_out();
        let row = connection.row(&self.look, arguments!()?).await?;
        let found = Found::read(&row).map_err(|e| connection.explain(e))?;
        let broken = found.broken(connection.tables()).is_some() || !found.log.is_sound(handed_out);
        if found.moved || !schema::is_current(found.version) || broken {
            return schema::check(connection, self).await;
        }
        found.usable(connection.tables())
    }

    /// Called when an event was committed at or below the low mark of its lane, or below a seq that a reader had
    /// found decided. Returns the error that ends the reader.
    pub(super) async fn lower(&self, connection: &Connection, held: &[HeldLane], seq: Seq) -> StoreError {
        tracing::warn!(
            seq,
            "an event was committed at a seq that counted as settled: a session keeps cached seqs, or the sequence went back. \
             Reading again from there"
        );
        let (lanes, epochs) = lanes_and_epochs(held);
        let lowered = async {
            connection
                .rows(&self.lower, arguments!(lanes, epochs, seq)?)
                .await
        };
        match lowered.await {
            Ok(_) => StoreError::new(
                StoreErrorKind::Fenced,
                "an event was committed below the low mark: reading again from there",
            ),
            Err(error) => error,
        }
    }

    async fn look(
        &self,
        connection: &Connection,
        tx: &mut Transaction<'static, Postgres>,
    ) -> Result<Found, StoreError> {
        let rows = connection.rows_in(tx, &self.look, arguments!()?).await?;
        rows.first()
            .ok_or(sqlx::Error::RowNotFound)
            .and_then(Found::read)
            .map_err(|e| connection.explain(e))
    }

    fn looked(&self) {
        *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Found {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            version: row.try_get(0)?,
            moved: row.try_get(1)?,
            files_marked: (row.try_get(2)?, row.try_get(3)?),
            files: (row.try_get(4)?, row.try_get(5)?),
            last_taken: row.try_get(6)?,
            highest_mark: row.try_get(7)?,
            cache: row.try_get(8)?,
            encoding: row.try_get(9)?,
            log: LogFound::read(row)?,
        })
    }

    /// Why the low marks are invalid, if they are. A table that was rewritten (`vacuum full`) can't be
    /// distinguished from one that was truncated. Reading it again does no harm.
    fn broken(&self, tables: &Tables) -> Option<String> {
        let (table, sequence) = (tables.name(), tables.name_beside("seq"));
        if self.files_marked.0.is_none() {
            return Some(format!("{table} was upgraded from an earlier version"));
        }
        if self.files.0 != self.files_marked.0 {
            return Some(format!(
                "the table {table} has another file than before: it was truncated, restored or rewritten"
            ));
        }
        if self.files.1 != self.files_marked.1 {
            return Some(format!(
                "the sequence {sequence} has another file than before: it was restarted or altered"
            ));
        }
        (self.last_taken < self.highest_mark).then(|| {
            format!(
                "the sequence {sequence} went back to {}: everything up to {} was settled before",
                self.last_taken, self.highest_mark
            )
        })
    }

    /// Problems that only a person can fix.
    fn usable(&self, tables: &Tables) -> Result<(), StoreError> {
        let sequence = tables.name_beside("seq");
        let problem = if self.cache != 1 {
            format!(
                "the sequence {sequence} has a cache of {cache}, and events of sessions that keep cached seqs could be missed: run \
                 `pillarbox migrate`, or in SQL `alter sequence {sequence} cache 1;`. Sessions that are open keep what they have \
                 cached until they reconnect",
                cache = self.cache
            )
        } else if self.encoding != "UTF8" {
            format!(
                "the database has the encoding {}, and the outbox needs UTF8",
                self.encoding
            )
        } else {
            return Ok(());
        };
        Err(StoreError::new(StoreErrorKind::Misconfigured, problem))
    }
}
