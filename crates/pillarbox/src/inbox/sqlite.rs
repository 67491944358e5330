//! SQLite. Only one transaction writes at a time, so two never insert the same event at once.
//!
//! Transactions begin with `begin immediate`: one that reads first and writes later is refused if another
//! wrote in between.

use sqlx::{AssertSqlSafe, Sqlite, SqlitePool, Transaction};

use super::{
    Attempts, Database, Inbox, InboxError, Place, find,
    sql::{Dialect, check_and_forget, inbox_statements, is_connection_trouble},
};
use crate::event::EventId;

pub(super) const SCHEMA: &str = include_str!("sqlite/schema.sql");

inbox_statements! {
    forget: "sqlite/forget.sql",
    fewer: "sqlite/fewer.sql",
}

impl Dialect for Sqlite {
    /// Times are in microseconds. SQLite's clock counts milliseconds.
    const NOW: &'static str = "(cast(round(unixepoch('subsec') * 1000) as integer) * 1000)";
    const MICROSECOND: &'static str = "1";
    type Statements = Statements;

    fn statements(inbox: &Inbox) -> &Statements {
        &inbox.statements.sqlite
    }

    fn is_missing_table(error: &sqlx::Error) -> bool {
        error
            .as_database_error()
            .is_some_and(|error| error.message().starts_with("no such table"))
    }

    /// No statement of SQLite both updates and deletes.
    async fn ends(pool: &SqlitePool, at: Place<'_>, event_id: &EventId) -> Result<(), InboxError> {
        let fewer = sqlx::query(at.inbox.sql::<Self>(|sql| &sql.fewer))
            .bind(at.group)
            .bind(event_id.to_string())
            .execute(pool)
            .await
            .map_err(|error| at.inbox.attempts_error::<Self>(error))?;
        match fewer.rows_affected() {
            0 => pool.leave(at, event_id).await,
            _ => Ok(()),
        }
    }
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
        sqlx::raw_sql(AssertSqlSafe(inbox.render::<Sqlite>(SCHEMA)))
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    check_and_forget!(Sqlite);

    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool {
        /// Out of memory, read-only, a disk error, a full disk, can't open the file.
        const CODES: [i64; 5] = [7, 8, 10, 13, 14];
        match find(error) {
            Some(error @ sqlx::Error::Database(_)) => code(error).is_some_and(|code| CODES.contains(&code)),
            Some(error) => is_connection_trouble(error),
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

/// The higher bytes only give details.
fn code(error: &sqlx::Error) -> Option<i64> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<i64>().ok()? & 0xff)
}
