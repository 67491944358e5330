//! What PostgreSQL and SQLite share.
//!
//! A statement that both can run is in `sql/`. Its names and what the dialects write differently are filled in
//! once per inbox, by [`Inbox::sql`]. The Rust side is written once, too, by macros. Generic
//! functions would need too many bounds on sqlx's types.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "postgres")]
use sqlx::Postgres;
#[cfg(feature = "sqlite")]
use sqlx::Sqlite;
use sqlx::{AssertSqlSafe, Pool, Row, Transaction};

use super::{
    Inbox, InboxError, Place, Remember, Seen, Sighting,
    attempts::{Attempts, Begun, EVENT_AGE_MAX, MEMBER_AGE_MAX, ROWS_MAX},
};
use crate::{event::EventId, statement::Statement, table, transaction::sealed};

/// What differs between the databases.
pub(super) trait Dialect: sqlx::Database {
    /// `{now}`.
    const NOW: &'static str;
    /// `{microsecond}`. A multiple of it can be subtracted from a time.
    const MICROSECOND: &'static str;
    type Statements;

    fn statements(inbox: &Inbox) -> &Self::Statements;

    fn is_missing_table(error: &sqlx::Error) -> bool;

    /// See [`Attempts::ends`].
    fn ends(
        pool: &Pool<Self>,
        at: Place<'_>,
        event_id: &EventId,
    ) -> impl Future<Output = Result<(), InboxError>> + Send;
}

/// The struct of an inbox's statements: those that both databases share, and this one's own.
macro_rules! inbox_statements {
    ($($own:ident: $file:literal,)+) => {
        $crate::statement::statements! {
            pub(super) struct Statements {
                once: "sql/once.sql",
                newer: "sql/newer.sql",
                last: "sql/last.sql",
                enter: "sql/enter.sql",
                tidy: "sql/tidy.sql",
                settled: "sql/settled.sql",
                begun: "sql/begun.sql",
                begins: "sql/begins.sql",
                ended: "sql/ended.sql",
                $($own: $file,)+
            }
        }
    };
}
pub(super) use inbox_statements;

/// The methods of [`Database`](super::Database) that both write alike.
macro_rules! check_and_forget {
    ($database:ident) => {
        async fn check(&self, inbox: &Inbox) -> Result<(), InboxError> {
            let sql = inbox.render::<$database>("select 1 from {processed} cross join {versions} limit 0");
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .execute(self)
                .await
                .map_err(|error| inbox.database_error::<$database>(error))?;
            Ok(())
        }

        async fn forget_some(
            &self,
            inbox: &Inbox,
            group: &str,
            older_than: std::time::Duration,
        ) -> Result<u64, InboxError> {
            let forgotten = sqlx::query(inbox.sql::<$database>(|sql| &sql.forget))
                .bind(group)
                .bind($crate::inbox::sql::microseconds(older_than))
                .execute(self)
                .await
                .map_err(|error| inbox.database_error::<$database>(error))?;
            Ok(forgotten.rows_affected())
        }
    };
}
pub(super) use check_and_forget;

/// Implements [`Remember`] for the database's transaction, and [`Attempts`] for its pool.
macro_rules! remember_and_attempt {
    ($database:ident) => {
        impl Remember for Transaction<'_, $database> {}

        impl sealed::Remember for Transaction<'_, $database> {
            async fn remember(&mut self, inbox: &Inbox, sighting: Sighting<'_>) -> Result<Seen, InboxError> {
                let refused = |error| inbox.database_error::<$database>(error);
                let once = sqlx::query(inbox.sql::<$database>(|sql| &sql.once))
                    .bind(sighting.group)
                    .bind(sighting.event_id.to_string())
                    .bind(sighting.entity_id)
                    .bind(sighting.version)
                    .execute(&mut **self)
                    .await
                    .map_err(refused)?;
                if once.rows_affected() == 0 {
                    return Ok(Seen::Before);
                }
                let (Some(entity), Some(version), true) =
                    (sighting.entity_id, sighting.version, sighting.newer)
                else {
                    return Ok(Seen::First);
                };
                let newer = sqlx::query(inbox.sql::<$database>(|sql| &sql.newer))
                    .bind(sighting.group)
                    .bind(entity)
                    .bind(version)
                    .execute(&mut **self)
                    .await
                    .map_err(refused)?;
                if newer.rows_affected() == 1 {
                    return Ok(Seen::First);
                }
                let last = sqlx::query_scalar(inbox.sql::<$database>(|sql| &sql.last))
                    .bind(sighting.group)
                    .bind(entity)
                    .fetch_one(&mut **self)
                    .await
                    .map_err(refused)?;
                Ok(Seen::Stale { last })
            }

            async fn ended(
                &mut self,
                inbox: &Inbox,
                group: &str,
                event_id: &EventId,
            ) -> Result<(), InboxError> {
                sqlx::query(inbox.sql::<$database>(|sql| &sql.ended))
                    .bind(group)
                    .bind(event_id.to_string())
                    .execute(&mut **self)
                    .await
                    .map_err(|error| inbox.attempts_error::<$database>(error))?;
                Ok(())
            }
        }

        impl Attempts for Pool<$database> {
            async fn enter(&self, at: Place<'_>, member: &EventId) -> Result<(), InboxError> {
                sqlx::query(at.inbox.sql::<$database>(|sql| &sql.enter))
                    .bind(at.group)
                    .bind(member.to_string())
                    .execute(self)
                    .await
                    .map_err(|error| at.inbox.attempts_error::<$database>(error))?;
                Ok(())
            }

            async fn tidy(&self, at: Place<'_>) -> Result<(), InboxError> {
                sqlx::query(at.inbox.sql::<$database>(|sql| &sql.tidy))
                    .bind(at.group)
                    .bind(microseconds(MEMBER_AGE_MAX))
                    .bind(microseconds(EVENT_AGE_MAX))
                    .execute(self)
                    .await
                    .map_err(|error| at.inbox.attempts_error::<$database>(error))?;
                Ok(())
            }

            async fn leave(&self, at: Place<'_>, member: &EventId) -> Result<(), InboxError> {
                sqlx::query(at.inbox.sql::<$database>(|sql| &sql.ended))
                    .bind(at.group)
                    .bind(member.to_string())
                    .execute(self)
                    .await
                    .map_err(|error| at.inbox.attempts_error::<$database>(error))?;
                Ok(())
            }

            async fn begun(&self, at: Place<'_>) -> Result<Vec<Begun>, InboxError> {
                sqlx::query(at.inbox.sql::<$database>(|sql| &sql.settled))
                    .bind(at.group)
                    .execute(self)
                    .await
                    .map_err(|error| at.inbox.attempts_error::<$database>(error))?;
                let rows = sqlx::query(at.inbox.sql::<$database>(|sql| &sql.begun))
                    .bind(at.group)
                    .bind(ROWS_MAX)
                    .fetch_all(self)
                    .await
                    .map_err(|error| at.inbox.attempts_error::<$database>(error))?;
                let mut begun = Vec::with_capacity(rows.len());
                for row in &rows {
                    let id = row.try_get::<&str, _>(0)?.into();
                    let times = times(row.try_get(1)?);
                    begun.push(Begun { id, times });
                }
                Ok(begun)
            }

            async fn begins(
                &self,
                at: Place<'_>,
                event_id: &EventId,
                alone: bool,
            ) -> Result<Option<u32>, InboxError> {
                let begun = sqlx::query_scalar(at.inbox.sql::<$database>(|sql| &sql.begins))
                    .bind(at.group)
                    .bind(event_id.to_string())
                    .bind(alone)
                    .fetch_optional(self)
                    .await
                    .map_err(|error| at.inbox.attempts_error::<$database>(error))?;
                Ok(begun.map(times))
            }

            async fn ends(&self, at: Place<'_>, event_id: &EventId) -> Result<(), InboxError> {
                $database::ends(self, at, event_id).await
            }
        }
    };
}

#[cfg(feature = "postgres")]
remember_and_attempt!(Postgres);
#[cfg(feature = "sqlite")]
remember_and_attempt!(Sqlite);

impl Inbox {
    /// A statement in the database's dialect.
    pub(super) fn sql<D: Dialect>(
        &self,
        statement: impl FnOnce(&D::Statements) -> &Statement,
    ) -> AssertSqlSafe<Arc<str>> {
        let statement = statement(D::statements(self));
        AssertSqlSafe(statement.rendered(|sql| self.render::<D>(sql)).clone())
    }

    pub(super) fn render<D: Dialect>(&self, sql: &str) -> String {
        let index = self.processed.rsplit('.').next().unwrap_or(&self.processed);
        sql.replace("{now}", D::NOW)
            .replace("{microsecond}", D::MICROSECOND)
            .replace("{processed}", &table::quoted(&self.processed))
            .replace("{versions}", &table::quoted(&self.versions))
            .replace("{attempts}", &table::quoted(&self.attempts()))
            .replace("{index}", &table::quoted(&format!("{index}_age")))
    }

    pub(super) fn database_error<D: Dialect>(&self, error: sqlx::Error) -> InboxError {
        missing::<D>(&self.processed, error)
    }

    /// The same for the table of attempts.
    pub(super) fn attempts_error<D: Dialect>(&self, error: sqlx::Error) -> InboxError {
        missing::<D>(&self.attempts(), error)
    }
}

fn missing<D: Dialect>(table: &str, error: sqlx::Error) -> InboxError {
    match D::is_missing_table(&error) {
        true => InboxError::NotMigrated {
            table: table.to_owned(),
            source: Some(error.into()),
        },
        false => error.into(),
    }
}

/// An age as the statements take it: microseconds, at most a century. PostgreSQL's times have a beginning.
pub(super) fn microseconds(age: Duration) -> i64 {
    const CENTURY: u128 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(age.as_micros().min(CENTURY)).unwrap_or(i64::MAX)
}

fn times(begun: i32) -> u32 {
    u32::try_from(begun).unwrap_or_default()
}

pub(super) fn is_connection_trouble(error: &sqlx::Error) -> bool {
    use sqlx::Error;
    matches!(
        error,
        Error::Io(_)
            | Error::Tls(_)
            | Error::Protocol(_)
            | Error::PoolTimedOut
            | Error::PoolClosed
            | Error::WorkerCrashed
            | Error::BeginFailed
    )
}
