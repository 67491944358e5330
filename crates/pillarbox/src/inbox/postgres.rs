//! PostgreSQL. The primary key decides which of two transactions sees an event first; the other waits for it.

use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};

use super::{
    Database, Inbox, InboxError, Place, find,
    sql::{Dialect, check_and_forget, inbox_statements, is_connection_trouble},
};
use crate::event::EventId;

pub(super) const SCHEMA: &str = include_str!("postgres/schema.sql");
/// The lock for concurrent migrations: `create table if not exists` alone would fail in one of them.
const MIGRATION_LOCK: i64 = 0x7069_6c6c_696e;

inbox_statements! {
    forget: "postgres/forget.sql",
    ends: "postgres/ends.sql",
}

impl Dialect for Postgres {
    const NOW: &'static str = "now()";
    const MICROSECOND: &'static str = "interval '1 microsecond'";
    type Statements = Statements;

    fn statements(inbox: &Inbox) -> &Statements {
        &inbox.statements.postgres
    }

    fn is_missing_table(error: &sqlx::Error) -> bool {
        matches!(error, sqlx::Error::Database(refusal) if refusal.code().is_some_and(|c| c == "42P01" || c == "3F000"))
    }

    async fn ends(pool: &PgPool, at: Place<'_>, event_id: &EventId) -> Result<(), InboxError> {
        sqlx::query(at.inbox.sql::<Self>(|sql| &sql.ends))
            .bind(at.group)
            .bind(event_id.to_string())
            .execute(pool)
            .await
            .map_err(|error| at.inbox.attempts_error::<Self>(error))?;
        Ok(())
    }
}

impl Database for PgPool {
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, InboxError> {
        Ok(PgPool::begin(self).await?)
    }

    /// In a transaction with a failed statement, `commit` rolls back and reports no error, and neither does
    /// sqlx. If a handler ignored such an error, its event would be acknowledged and lost. Any other
    /// statement returns the error.
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
        sqlx::raw_sql(AssertSqlSafe(inbox.render::<Postgres>(SCHEMA)))
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    check_and_forget!(Postgres);

    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool {
        /// SQLSTATE classes: connections (08), too few resources (53), the operator (57), the system (58),
        /// and a former primary that is now read-only (25006).
        const CODES: [&str; 5] = ["08", "53", "57", "58", "25006"];
        match find(error) {
            Some(sqlx::Error::Database(refusal)) => refusal
                .code()
                .is_some_and(|code| CODES.iter().any(|away| code.starts_with(away))),
            Some(error) => is_connection_trouble(error),
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
