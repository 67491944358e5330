//! PostgreSQL. The primary key decides which of two transactions sees an event first; the other waits for it.

mod attempts;

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use uuid::Uuid;

use super::{Database, Inbox, InboxError, Remember, Seen, Sighting, find};
use crate::{statement::statements, transaction::sealed};

pub(super) const SCHEMA: &str = include_str!("postgres/schema.sql");
/// Of those who make the tables at the same time one waits: `create table if not exists` alone would fail.
const MIGRATION_LOCK: i64 = 0x7069_6c6c_696e;

statements! {
    pub(super) struct Statements {
        once: "postgres/once.sql",
        newer: "postgres/newer.sql",
        last: "postgres/last.sql",
        forget: "postgres/forget.sql",
        enter: "postgres/enter.sql",
        tidy: "postgres/tidy.sql",
        settled: "postgres/settled.sql",
        begun: "postgres/begun.sql",
        begins: "postgres/begins.sql",
        ended: "postgres/ended.sql",
        ends: "postgres/ends.sql",
    }
}

impl Remember for Transaction<'_, Postgres> {}

impl sealed::Remember for Transaction<'_, Postgres> {
    async fn remember(&mut self, inbox: &Inbox, sighting: Sighting<'_>) -> Result<Seen, InboxError> {
        remember(self, inbox, sighting)
            .await
            .map_err(|error| inbox.database_error(is_missing_table(&error), error))
    }

    async fn ended(&mut self, inbox: &Inbox, group: &str, event_id: Uuid) -> Result<(), InboxError> {
        sqlx::query(inbox.postgres(|sql| &sql.ended))
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
    let once = sqlx::query(inbox.postgres(|sql| &sql.once))
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
    let newer = sqlx::query(inbox.postgres(|sql| &sql.newer))
        .bind(sighting.group)
        .bind(entity)
        .bind(version)
        .execute(&mut **tx)
        .await?;
    if newer.rows_affected() == 1 {
        return Ok(Seen::First);
    }
    let last = sqlx::query_scalar(inbox.postgres(|sql| &sql.last))
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
        let forgotten = sqlx::query(inbox.postgres(|sql| &sql.forget))
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
