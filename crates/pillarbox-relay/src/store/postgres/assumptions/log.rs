//! The positions of the event log only grow, and none is used twice: otherwise a reader would take a new entry for one that
//! it has read.
//!
//! If their counter is behind the log's rows, it is raised. If the log may have lost its latest entries, it is unknown
//! how far positions were handed out. Then the log goes on far above all of them. The signs are another cluster (a dump
//! was restored), another timeline (a standby was promoted, or a backup was restored to a point in time), another file
//! of the counter (`truncate … restart identity`), and a counter below what this relay's readers have seen.

use pillarbox::table::Tables;
use sqlx::{Postgres, Row, Transaction, postgres::PgRow};

use super::super::connection::{Connection, Sql, arguments, statement};
use crate::{event_log::Position, store::StoreError};

pub(super) struct Statements {
    lock: Sql,
    leap: Sql,
    raise: Sql,
    note: Sql,
}

/// The current state of the counter.
pub(super) struct LogFound {
    /// The latest position that was taken, and the latest that the log has or had.
    taken: Position,
    end: Position,
    /// As recorded, and as it is.
    file: [Option<i64>; 2],
    timeline: [Option<String>; 2],
}

impl LogFound {
    pub(super) fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            taken: row.try_get(10)?,
            end: row.try_get(11)?,
            file: [row.try_get(12)?, row.try_get(13)?],
            timeline: [row.try_get(14)?, row.try_get(15)?],
        })
    }

    pub(super) fn is_sound(&self, handed_out: Position) -> bool {
        !self.is_behind() && self.loss(handed_out).is_none() && !self.is_unknown()
    }

    fn is_behind(&self) -> bool {
        self.taken < self.end
    }

    /// The outbox was upgraded from an earlier version.
    fn is_unknown(&self) -> bool {
        self.file[0].is_none() || self.timeline[0].is_none()
    }

    /// Why entries may be lost.
    fn loss(&self, handed_out: Position) -> Option<&'static str> {
        let differs = self.file[0].is_some() && self.file[0] != self.file[1];
        if differs {
            return Some(
                "the counter of its positions has another file than before: it was restarted or restored",
            );
        }
        let differs = self.timeline[0].is_some() && self.timeline[0] != self.timeline[1];
        if differs {
            return Some(
                "the server has another timeline than before: a standby was promoted, or a backup was restored",
            );
        }
        (handed_out > self.taken.max(self.end)).then_some("it ends before what readers have seen")
    }
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            lock: statement(tables, include_str!("../sql/assumptions/lock_log.sql")),
            leap: statement(tables, include_str!("../sql/assumptions/leap_log.sql")),
            raise: statement(tables, include_str!("../sql/assumptions/raise_log.sql")),
            note: statement(tables, include_str!("../sql/assumptions/note_log.sql")),
        }
    }

    pub(super) async fn mend(
        &self,
        connection: &Connection,
        tx: &mut Transaction<'static, Postgres>,
        found: &LogFound,
        handed_out: Position,
        moved: bool,
    ) -> Result<(), StoreError> {
        let moved = moved.then_some("the outbox was restored from another cluster");
        if let Some(why) = moved.or_else(|| found.loss(handed_out)) {
            tracing::warn!(
                why,
                "the event log may have lost its latest entries: new ones get positions above all that were handed out, and \
                 readers of lost ones are told"
            );
            connection.rows_in(tx, &self.lock, arguments!()?).await?;
            connection
                .rows_in(tx, &self.leap, arguments!(handed_out)?)
                .await?;
        } else if found.is_behind() {
            tracing::warn!(
                taken = found.taken,
                end = found.end,
                "the counter of the event log's positions is behind the log: raising it"
            );
            connection
                .rows_in(tx, &self.raise, arguments!(found.end)?)
                .await?;
        } else if !found.is_unknown() {
            return Ok(());
        }
        connection.rows_in(tx, &self.note, arguments!()?).await.map(drop)
    }
}
