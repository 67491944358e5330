//! SQLite. One transaction writes at a time, so the primary key has nobody to decide between.
//!
//! Transactions begin with `begin immediate`: one that reads first and writes later is refused when another wrote in between.

mod attempts;

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Sqlite, SqlitePool, Transaction};
use uuid::Uuid;

use super::{Database, Inbox, InboxError, Remember, Seen, Sighting, find};
use crate::{statement::statements, transaction::sealed};

pub(super) const SCHEMA: &str = include_str!("sqlite/schema.sql");

statements! {
    pub(super) struct Statements {
        once: "sqlite/once.sql",
        newer: "sqlite/newer.sql",
        last: "sqlite/last.sql",
        forget: "sqlite/forget.sql",
        enter: "sqlite/enter.sql",
        tidy: "sqlite/tidy.sql",
        settled: "sqlite/settled.sql",
        begun: "sqlite/begun.sql",
        begins: "sqlite/begins.sql",
        ended: "sqlite/ended.sql",
        fewer: "sqlite/fewer.sql",
    }
}

impl Remember for Transaction<'_, Sqlite> {}

impl sealed::Remember for Transaction<'_, Sqlite> {
    async fn remember(&mut self, inbox: &Inbox, sighting: Sighting<'_>) -> Result<Seen, InboxError> {
        remember(self, inbox, sighting)
            .await
            .map_err(|error| inbox.database_error(is_missing_table(&error), error))
    }

    async fn ended(&mut self, inbox: &Inbox, group: &str, event_id: Uuid) -> Result<(), InboxError> {
        sqlx::query(inbox.sqlite(|sql| &sql.ended))
            .bind(group)
            .bind(event_id.to_string())
            .execute(&mut **self)
            .await
            .map_err(|error| inbox.attempts_error(is_missing_table(&error), error))?;
        Ok(())
    }
}

async fn remember(
    tx: &mut Transaction<'_, Sqlite>,
    inbox: &Inbox,
    sighting: Sighting<'_>,
) -> Result<Seen, sqlx::Error> {
    let once = sqlx::query(inbox.sqlite(|sql| &sql.once))
        .bind(sighting.group)
        .bind(sighting.event_id.to_string())
        .bind(sighting.entity_id)
        .bind(sighting.version)
        .bind(Timestamp::now().as_microsecond())
        .execute(&mut **tx)
        .await?;
    if once.rows_affected() == 0 {
        return Ok(Seen::Before);
    }
    let (Some(entity), Some(version), true) = (sighting.entity_id, sighting.version, sighting.newer) else {
        return Ok(Seen::First);
    };
    let newer = sqlx::query(inbox.sqlite(|sql| &sql.newer))
        .bind(sighting.group)
        .bind(entity)
        .bind(version)
        .execute(&mut **tx)
        .await?;
    if newer.rows_affected() == 1 {
        return Ok(Seen::First);
    }
    let last = sqlx::query_scalar(inbox.sqlite(|sql| &sql.last))
        .bind(sighting.group)
        .bind(entity)
        .fetch_one(&mut **tx)
        .await?;
    Ok(Seen::Stale { last })
}

impl Database for SqlitePool {
    type Transaction = Transaction<'static, Sqlite>;

    async fn begin(&self) -> Result<Self::Transaction, InboxError> {
        Ok(self.begin_with("begin immediate").await?)
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), InboxError> {
        Ok(tx.commit().await?)
    }

    async fn migrate(&self, inbox: &Inbox) -> Result<(), InboxError> {
        let mut tx = self.begin_with("begin immediate").await?;
        sqlx::raw_sql(AssertSqlSafe(inbox.render(SCHEMA)))
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    async fn check(&self, inbox: &Inbox) -> Result<(), InboxError> {
        let sql = inbox.render("select 1 from {processed} cross join {versions} limit 0");
        sqlx::query(AssertSqlSafe(sql))
            .execute(self)
            .await
            .map_err(|error| inbox.database_error(is_missing_table(&error), error))?;
        Ok(())
    }

    async fn forget_some(&self, inbox: &Inbox, group: &str, older_than: Duration) -> Result<u64, InboxError> {
        let age = i64::try_from(older_than.as_micros()).unwrap_or(i64::MAX);
        let forgotten = sqlx::query(inbox.sqlite(|sql| &sql.forget))
            .bind(group)
            .bind(Timestamp::now().as_microsecond().saturating_sub(age))
            .execute(self)
            .await
            .map_err(|error| inbox.database_error(is_missing_table(&error), error))?;
        Ok(forgotten.rows_affected())
    }

    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool {
        /// No memory, read-only, an error of the disk, a full one, can't be opened.
        const CODES: [i64; 5] = [7, 8, 10, 13, 14];
        match find(error) {
            Some(error @ sqlx::Error::Database(_)) => code(error).is_some_and(|code| CODES.contains(&code)),
            Some(error) => super::is_connection_trouble(error),
            None => false,
        }
    }

    fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
        /// Busy, locked.
        const CODES: [i64; 2] = [5, 6];
        find(error)
            .and_then(code)
            .is_some_and(|code| CODES.contains(&code))
    }
}

/// Its higher bytes say more than is asked here.
fn code(error: &sqlx::Error) -> Option<i64> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<i64>().ok()? & 0xff)
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().starts_with("no such table"))
}
