//! PostgreSQL. The primary key decides which of two transactions sees an event first; the other waits for it.

mod attempts;

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use uuid::Uuid;

use super::{Database, Inbox, InboxError, Seen, Sighting, Transaction as OpenTransaction, find};

pub(super) const SCHEMA: &str = include_str!("postgres/schema.sql");
const ONCE: &str = include_str!("postgres/once.sql");
const NEWER: &str = include_str!("postgres/newer.sql");
const LAST: &str = include_str!("postgres/last.sql");
const FORGET: &str = include_str!("postgres/forget.sql");
/// Of those who make the tables at the same time one waits: `create table if not exists` alone would fail.
const MIGRATION_LOCK: i64 = 0x7069_6c6c_696e;

impl OpenTransaction for Transaction<'_, Postgres> {
    async fn remember(&mut self, inbox: &Inbox, sighting: Sighting<'_>) -> Result<Seen, InboxError> {
        remember(self, inbox, sighting)
            .await
            .map_err(|error| inbox.database_error(is_missing_table(&error), error))
    }

    async fn ended(&mut self, inbox: &Inbox, group: &str, event_id: Uuid) -> Result<(), InboxError> {
        sqlx::query(AssertSqlSafe(inbox.render(attempts::ENDED)))
            .bind(group)
            .bind(event_id)
            .execute(&mut **self)
            .await
            .map_err(|error| inbox.attempts_error(is_missing_table(&error), error))?;
        Ok(())
    }
}

async fn remember(
    tx: &mut Transaction<'_, Postgres>,
    inbox: &Inbox,
    sighting: Sighting<'_>,
) -> Result<Seen, sqlx::Error> {
    let once = sqlx::query(AssertSqlSafe(inbox.render(ONCE)))
        .bind(sighting.group)
        .bind(sighting.event_id)
        .bind(sighting.entity_id)
        .bind(sighting.version)
        .execute(&mut **tx)
        .await?;
    if once.rows_affected() == 0 {
        return Ok(Seen::Before);
    }
    let (Some(entity), Some(version), true) = (sighting.entity_id, sighting.version, sighting.newer) else {
        return Ok(Seen::First);
    };
    let newer = sqlx::query(AssertSqlSafe(inbox.render(NEWER)))
        .bind(sighting.group)
        .bind(entity)
        .bind(version)
        .execute(&mut **tx)
        .await?;
    if newer.rows_affected() == 1 {
        return Ok(Seen::First);
    }
    let last = sqlx::query_scalar(AssertSqlSafe(inbox.render(LAST)))
        .bind(sighting.group)
        .bind(entity)
        .fetch_one(&mut **tx)
        .await?;
    Ok(Seen::Stale { last })
}

impl Database for PgPool {
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, InboxError> {
        Ok(PgPool::begin(self).await?)
    }

    /// `commit` in a transaction in which a statement failed rolls back and says nothing, and sqlx neither: an event whose
    /// handler passes over such an error would be acknowledged and lost. Any other statement says it.
    async fn commit(&self, mut tx: Self::Transaction) -> Result<(), InboxError> {
        match sqlx::query("select").execute(&mut *tx).await {
            Ok(_) => Ok(tx.commit().await?),
            Err(error) if is_aborted(&error) => Err(InboxError::Aborted),
            Err(error) => Err(error.into()),
        }
    }

    async fn migrate(&self, inbox: &Inbox) -> Result<(), InboxError> {
        let mut tx = PgPool::begin(self).await?;
        sqlx::query("select pg_advisory_xact_lock($1)")
            .bind(MIGRATION_LOCK)
            .execute(&mut *tx)
            .await?;
        sqlx::raw_sql(AssertSqlSafe(inbox.render(SCHEMA)))
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    async fn check(&self, inbox: &Inbox) -> Result<(), InboxError> {
        let sql = inbox.render("select from {processed} cross join {versions} limit 0");
        sqlx::query(AssertSqlSafe(sql))
            .execute(self)
            .await
            .map_err(|error| inbox.database_error(is_missing_table(&error), error))?;
        Ok(())
    }

    async fn forget_some(&self, inbox: &Inbox, group: &str, older_than: Duration) -> Result<u64, InboxError> {
        let forgotten = sqlx::query(AssertSqlSafe(inbox.render(FORGET)))
            .bind(group)
            .bind(older_than.as_secs_f64())
            .execute(self)
            .await
            .map_err(|error| inbox.database_error(is_missing_table(&error), error))?;
        Ok(forgotten.rows_affected())
    }

    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool {
        /// Connections (08), too few resources (53), the operator (57), the system (58), a primary that no longer is one
        /// (25006).
        const CODES: [&str; 5] = ["08", "53", "57", "58", "25006"];
        match find(error) {
            Some(sqlx::Error::Database(refusal)) => refusal
                .code()
                .is_some_and(|code| CODES.iter().any(|away| code.starts_with(away))),
            Some(error) => super::is_connection_trouble(error),
            None => false,
        }
    }

    fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
        matches!(find(error), Some(sqlx::Error::Database(refusal))
            if refusal.code().is_some_and(|code| code.starts_with("40")))
    }
}

fn is_aborted(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(refusal) if refusal.code().is_some_and(|code| code == "25P02"))
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(refusal) if refusal.code().is_some_and(|c| c == "42P01" || c == "3F000"))
}
