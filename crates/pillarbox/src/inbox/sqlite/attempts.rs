//! Attempts that did not end, in SQLite.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Row, SqlitePool};
use uuid::Uuid;

use super::{
    super::attempts::{Attempts, Begun, EVENT_AGE_MAX, MEMBER_AGE_MAX, Place, ROWS_MAX},
    is_missing_table,
};
use crate::inbox::InboxError;

impl Attempts for SqlitePool {
    async fn enter(&self, at: Place<'_>, member: Uuid) -> Result<(), InboxError> {
        sqlx::query(at.inbox.sqlite(|sql| &sql.enter))
            .bind(at.group)
            .bind(member.to_string())
            .bind(ago(Duration::ZERO))
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(())
    }

    async fn tidy(&self, at: Place<'_>) -> Result<(), InboxError> {
        sqlx::query(at.inbox.sqlite(|sql| &sql.tidy))
            .bind(at.group)
            .bind(ago(MEMBER_AGE_MAX))
            .bind(ago(EVENT_AGE_MAX))
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(())
    }

    async fn leave(&self, at: Place<'_>, member: Uuid) -> Result<(), InboxError> {
        sqlx::query(at.inbox.sqlite(|sql| &sql.ended))
            .bind(at.group)
            .bind(member.to_string())
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(())
    }

    async fn begun(&self, at: Place<'_>) -> Result<Vec<Begun>, InboxError> {
        sqlx::query(at.inbox.sqlite(|sql| &sql.settled))
            .bind(at.group)
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        let rows = sqlx::query(at.inbox.sqlite(|sql| &sql.begun))
            .bind(at.group)
            .bind(ROWS_MAX)
            .fetch_all(self)
            .await
            .map_err(|error| refused(at, error))?;
        let mut begun = Vec::with_capacity(rows.len());
        for row in &rows {
            // What is no id is nobody's: we write none.
            if let Ok(id) = row.try_get::<&str, _>(0)?.parse() {
                let times = u32::try_from(row.try_get::<i64, _>(1)?).unwrap_or_default();
                begun.push(Begun { id, times });
            }
        }
        Ok(begun)
    }

    async fn begins(&self, at: Place<'_>, event_id: Uuid, alone: bool) -> Result<Option<u32>, InboxError> {
        let begun: Option<i64> = sqlx::query_scalar(at.inbox.sqlite(|sql| &sql.begins))
            .bind(at.group)
            .bind(event_id.to_string())
            .bind(i64::from(alone))
            .bind(ago(Duration::ZERO))
            .fetch_optional(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(begun.map(|begun| u32::try_from(begun).unwrap_or_default()))
    }

    async fn ends(&self, at: Place<'_>, event_id: Uuid) -> Result<(), InboxError> {
        let fewer = sqlx::query(at.inbox.sqlite(|sql| &sql.fewer))
            .bind(at.group)
            .bind(event_id.to_string())
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        match fewer.rows_affected() {
            0 => self.leave(at, event_id).await,
            _ => Ok(()),
        }
    }
}

/// In microseconds.
fn ago(age: Duration) -> i64 {
    let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    Timestamp::now().as_microsecond().saturating_sub(age)
}

fn refused(at: Place<'_>, error: sqlx::Error) -> InboxError {
    at.inbox.attempts_error(is_missing_table(&error), error)
}
