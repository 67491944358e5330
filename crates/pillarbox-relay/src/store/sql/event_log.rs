//! The event log, for both SQL databases.

mod conditions;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::Event;
use uuid::Uuid;

use self::conditions::Conditions;
use super::{DeadLetterStore, Sql, SqlDatabase, SqlRow, one_row};
use crate::{
    event::Seq,
    event_log::{
        EventLog, HourCount, Life, LifeRow, LogBounds, LogEntry, LogFilter, LogList, LogOutcome, LogRow,
        Position,
    },
    settlement::DeadReason,
    store::{
        PageLimit, StoreError, headers,
        log_search::{self, Found, SearchedLog, Span},
    },
};

/// Appends what a settlement has just written, in its transaction.
pub(in crate::store) async fn append<D: SqlDatabase>(
    database: &D,
    tx: &mut D::Tx,
    published: &[Seq],
    dead: &[Seq],
) -> Result<(), StoreError> {
    for (sql, seqs) in [
        (include_str!("event_log/append_published.sql"), published),
        (include_str!("event_log/append_dead.sql"), dead),
    ] {
        if !seqs.is_empty() {
            database
                .execute_in(tx, statement(database, sql), arguments!(seqs))
                .await?;
        }
    }
    Ok(())
}

#[async_trait]
impl<S: DeadLetterStore> EventLog for S {
    async fn read(&self, after: Position, limit: PageLimit) -> Result<Vec<LogRow>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/read.sql"));
        let bytes = limit.bytes.min(i64::MAX as usize);
        let rows = database
            .query(sql, arguments!(after, limit.events, bytes))
            .await?;
        database.read_rows(&rows, |row| match row.text(1)?.as_str() {
            "void" => Ok(LogRow::Void(row.integer(0)?)),
            _ => Ok(LogRow::Entry(Box::new(entry(row)?))),
        })
    }

    async fn fill(&self, first: Position, last: Position) -> Result<(), StoreError> {
        let database = self.database();
        let mut tx = database.begin_tx().await?;
        // Not longer, because a reader that waits keeps a connection of the relay.
        if let Some(sql) = S::Database::DIALECT.limit_lock_waits() {
            database
                .execute_in(&mut tx, statement(database, sql), arguments!())
                .await?;
        }
        let sql = statement(database, include_str!("event_log/fill.sql"));
        database.execute_in(&mut tx, sql, arguments!(first, last)).await?;
        database.commit_tx(tx).await
    }

    async fn bounds(&self) -> Result<LogBounds, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/bounds.sql"));
        let rows = database.query(sql, arguments!()).await?;
        one_row(database, &rows, |row| {
            let expired = row.integer(0)?;
            Ok(LogBounds {
                expired,
                last: row.integer(1)?.max(expired),
            })
        })
    }

    async fn list(
        &self,
        filter: &LogFilter,
        before: Option<Position>,
        count: usize,
    ) -> Result<LogList, StoreError> {
        log_search::list(self, filter, before, count).await
    }

    async fn life(&self, id: Uuid) -> Result<Option<Life>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/row.sql"));
        let rows = database.query(sql, arguments!(id)).await?;
        let mut row = database.read_rows(&rows, life_row)?.pop();
        if let Some(row) = &mut row {
            row.event = self.event_of(row.seq, id).await?;
        }
        let sql = statement(database, include_str!("event_log/by_id.sql"));
        let rows = database.query(sql, arguments!(id)).await?;
        let entries = database.read_rows(&rows, entry)?;
        Ok((row.is_some() || !entries.is_empty()).then_some(Life { row, entries }))
    }

    async fn counts(&self, filter: &LogFilter) -> Result<Vec<HourCount>, StoreError> {
        let span = log_search::counted(self, filter).await?;
        let database = self.database();
        let conditions = Conditions::new(filter, span);
        let sql = include_str!("event_log/counts.sql").replace("{conditions}", &conditions.sql);
        let rows = database
            .query(statement(database, &sql), conditions.arguments)
            .await?;
        database.read_rows(&rows, |row| {
            let hour = row.integer(0)?.saturating_mul(3_600);
            Ok(HourCount {
                hour: Timestamp::from_second(hour).unwrap_or_default(),
                event_type: row.text(1)?,
                status: row.text(2)?,
                count: row.count(3)?,
            })
        })
    }

    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let expired = self.bounds().await?.expired;
        let database = self.database();
        let mut tx = database.begin_tx().await?;
        let sql = statement(database, include_str!("event_log/expire.sql"));
        let rows = database
            .execute_in(&mut tx, sql, arguments!(age, limit, expired))
            .await?;
        let deleted = database.read_rows(&rows, |row| row.integer(0))?;
        if let Some(last) = deleted.iter().max() {
            let sql = statement(database, include_str!("event_log/expired.sql"));
            database.execute_in(&mut tx, sql, arguments!(*last)).await?;
        }
        database.commit_tx(tx).await?;
        Ok(deleted.len())
    }
}

#[async_trait]
impl<S: DeadLetterStore> SearchedLog for S {
    async fn row_from(&self, position: Position) -> Result<Option<(Position, Timestamp)>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/place.sql"));
        let rows = database.query(sql, arguments!(position)).await?;
        let mut found = database.read_rows(&rows, |row| Ok((row.integer(0)?, row.time(1)?)))?;
        Ok(found.pop())
    }

    async fn latest(&self, filter: &LogFilter, span: Span, count: usize) -> Result<Found, StoreError> {
        let database = self.database();
        let conditions = Conditions::new(filter, span);
        let sql = include_str!("event_log/list.sql")
            .replace("{conditions}", &conditions.sql)
            .replace("{count}", &count.to_string());
        let rows = database
            .query(statement(database, &sql), conditions.arguments)
            .await?;
        let entries = database.read_rows(&rows, entry)?;
        Ok(Found {
            more: entries.len() == count,
            entries,
        })
    }
}

fn statement(database: &impl SqlDatabase, sql: &str) -> Sql {
    database.statement(&with_parts(sql))
}

/// Fills in the columns of the log.
pub(in crate::store) fn with_parts(sql: &str) -> String {
    sql.replace("{entry}", include_str!("event_log/entry.sql").trim_end())
        .replace("{log_columns}", include_str!("event_log/columns.sql").trim_end())
        .replace(
            "{log_published}",
            include_str!("event_log/published.sql").trim_end(),
        )
}

/// From the columns of `event_log/entry.sql`.
fn entry(row: &impl SqlRow) -> Result<LogEntry, sqlx::Error> {
    let outcome = match row.text(1)?.as_str() {
        "dead" => LogOutcome::Dead {
            reason: DeadReason::from_stored(&row.text(17)?),
            error: row.text(18)?,
        },
        _ => LogOutcome::Published,
    };
    let narrow = |wide: i64| i32::try_from(wide).unwrap_or(i32::MAX);
    let mut event = Event::to(row.text(5)?)
        .id(row.id(4)?)
        .event_type(row.text(7)?)
        .aggregate(row.text(9)?, row.text(10)?);
    event.stream = row.optional_text(6)?;
    event.schema_version = narrow(row.optional_integer(8)?.unwrap_or(1));
    event.aggregate_version = row.optional_integer(11)?;
    event.partition_key = row.optional_text(12)?;
    event.project_id = row.optional_text(13)?;
    event.user_id = row.optional_text(14)?;
    let stored = row.optional_text(19)?.unwrap_or_default();
    event.headers = headers::read(stored.as_bytes()).unwrap_or_default();
    if let Some(payload) = row.optional_text(20)? {
        event.payload = payload.into();
    }
    Ok(LogEntry {
        position: row.integer(0)?,
        at: row.time(2)?,
        outcome,
        seq: row.integer(3)?,
        created_at: row.time(15)?,
        attempts: u32::try_from(row.integer(16)?).unwrap_or_default(),
        event,
    })
}

/// From the columns of `event_log/row.sql`.
fn life_row(row: &impl SqlRow) -> Result<LifeRow, sqlx::Error> {
    let failures = row.optional_text(9)?.unwrap_or_default();
    Ok(LifeRow {
        seq: row.integer(0)?,
        status: row.text(1)?,
        created_at: row.time(2)?,
        attempts: u32::try_from(row.integer(3)?).unwrap_or_default(),
        first_attempt_at: row.optional_time(4)?,
        last_attempt_at: row.optional_time(5)?,
        published_at: row.optional_time(6)?,
        last_error: row.optional_text(7)?,
        due_at: row.optional_time(8)?,
        failures: serde_json::from_str(&failures).unwrap_or_default(),
        event: None,
    })
}
