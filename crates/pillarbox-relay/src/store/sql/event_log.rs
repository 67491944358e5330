//! The event log, for both SQL databases.

mod append;
mod conditions;
mod row;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::EventId;

pub(in crate::store) use self::append::{append, some_failures, with_delivery};
use self::{
    conditions::Conditions,
    row::{AFTER_ENTRY, entry, life_row, void},
};
use super::{DeadLetterStore, Sql, SqlDatabase, SqlRow, one_row};
use crate::{
    event_log::{
        EventLog, HourCount, Life, LogBounds, LogCounts, LogFilter, LogList, LogRow, Place, Position,
    },
    store::{
        PageLimit, StoreError,
        log_search::{self, Found, LIST_BYTES_MAX, SearchedLog, Span},
    },
};

#[async_trait]
impl<S: DeadLetterStore> EventLog for S {
    async fn read(&self, after: Position, limit: PageLimit) -> Result<Vec<LogRow>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/read.sql"));
        let bytes = limit.bytes.min(i64::MAX as usize);
        let rows = database
            .query_log(sql, arguments!(after, limit.events, bytes))
            .await?;
        let rows = database.read_rows(&rows, |row| match row.text(1)?.as_str() {
            "void" => Ok(LogRow::Void(void(row.integer(0)?, row.integer(3)?))),
            _ => Ok(LogRow::Entry(Box::new(entry(row)?))),
        })?;
        if let Some(last) = rows.last() {
            database.handed_out(last.position());
        }
        Ok(rows)
    }

    async fn places(&self, after: Position, count: usize) -> Result<Vec<Place>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/places.sql"));
        let rows = database.query_log(sql, arguments!(after, count)).await?;
        database.read_rows(&rows, |row| {
            let position = row.integer(0)?;
            let positions = match row.text(1)?.as_str() {
                "void" => void(position, row.integer(2)?),
                _ => void(position, 0),
            };
            Ok(Place {
                positions,
                at: row.time(3)?,
            })
        })
    }

    async fn mark(&self) -> Result<Position, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/mark.sql"));
        let rows = database.execute(sql, arguments!()).await?;
        let position = one_row(database, &rows, |row| row.integer(0))?;
        database.handed_out(position);
        Ok(position)
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

    async fn skip(&self, first: Position, last: Position) -> Result<(), StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/skip.sql"));
        database.execute(sql, arguments!(first, last)).await.map(drop)
    }

    async fn bounds(&self) -> Result<LogBounds, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/bounds.sql"));
        let rows = database.query_log(sql, arguments!()).await?;
        let bounds = one_row(database, &rows, |row| {
            let expired = row.integer(0)?;
            Ok(LogBounds {
                expired,
                last: row.integer(1)?.max(expired),
            })
        })?;
        database.handed_out(bounds.last);
        Ok(bounds)
    }

    async fn list(
        &self,
        filter: &LogFilter,
        before: Option<Position>,
        count: usize,
    ) -> Result<LogList, StoreError> {
        log_search::list(self, filter, before, count).await
    }

    async fn life(&self, id: &EventId) -> Result<Option<Life>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/row.sql"));
        let rows = database.browse(sql, arguments!(id)).await?;
        let mut row = database.read_rows(&rows, life_row)?.pop();
        if let Some(row) = &mut row {
            row.event = self.event_of(row.seq, id).await?;
        }
        let sql = statement(database, include_str!("event_log/by_id.sql"));
        let rows = database.browse(sql, arguments!(id)).await?;
        let entries = database.read_rows(&rows, entry)?;
        Ok((row.is_some() || !entries.is_empty()).then_some(Life { row, entries }))
    }

    async fn counts(&self, filter: &LogFilter, entries_max: Position) -> Result<LogCounts, StoreError> {
        log_search::counts(self, filter, entries_max).await
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
        let rows = database.browse(sql, arguments!(position)).await?;
        let mut found = database.read_rows(&rows, |row| Ok((row.integer(0)?, row.time(1)?)))?;
        Ok(found.pop())
    }

    async fn last_before(&self, position: Position) -> Result<Option<Position>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("event_log/last_before.sql"));
        let rows = database.browse(sql, arguments!(position)).await?;
        one_row(database, &rows, |row| row.optional_integer(0))
    }

    async fn latest(&self, filter: &LogFilter, span: Span, count: usize) -> Result<Found, StoreError> {
        let database = self.database();
        let conditions = Conditions::new(filter, span);
        let sql = include_str!("event_log/list.sql")
            .replace("{conditions}", &conditions.sql)
            .replace("{count}", &count.to_string())
            .replace("{bytes}", &LIST_BYTES_MAX.to_string());
        let rows = database
            .browse(statement(database, &sql), conditions.arguments)
            .await?;
        let mut within_count = 0;
        let entries = database.read_rows(&rows, |row| {
            within_count = row.count(AFTER_ENTRY)? as usize;
            entry(row)
        })?;
        Ok(Found {
            more: within_count == count || entries.len() < within_count,
            entries,
        })
    }

    async fn count(&self, filter: &LogFilter, span: Span) -> Result<Vec<HourCount>, StoreError> {
        let database = self.database();
        let conditions = Conditions::new(filter, span);
        let sql = include_str!("event_log/counts.sql").replace("{conditions}", &conditions.sql);
        let rows = database
            .browse(statement(database, &sql), conditions.arguments)
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
        .replace(
            "{entry_bytes}",
            include_str!("event_log/entry_bytes.sql").trim_end(),
        )
}
