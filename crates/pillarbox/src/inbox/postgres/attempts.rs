//! Attempts that did not end, in PostgreSQL.

use sqlx::{PgPool, Row};
use uuid::Uuid;

use super::{
    super::attempts::{Attempts, Begun, EVENT_AGE_MAX, MEMBER_AGE_MAX, Place, ROWS_MAX},
    is_missing_table,
};
use crate::inbox::InboxError;

impl Attempts for PgPool {
    async fn enter(&self, at: Place<'_>, member: Uuid) -> Result<(), InboxError> {
        sqlx::query(at.inbox.postgres(|sql| &sql.enter))
            .bind(at.group)
            .bind(member)
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(())
    }

    async fn tidy(&self, at: Place<'_>) -> Result<(), InboxError> {
        sqlx::query(at.inbox.postgres(|sql| &sql.tidy))
            .bind(at.group)
            .bind(MEMBER_AGE_MAX.as_secs_f64())
            .bind(EVENT_AGE_MAX.as_secs_f64())
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(())
    }

    async fn leave(&self, at: Place<'_>, member: Uuid) -> Result<(), InboxError> {
        sqlx::query(at.inbox.postgres(|sql| &sql.ended))
            .bind(at.group)
            .bind(member)
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(())
    }

    async fn begun(&self, at: Place<'_>) -> Result<Vec<Begun>, InboxError> {
        sqlx::query(at.inbox.postgres(|sql| &sql.settled))
            .bind(at.group)
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        let rows = sqlx::query(at.inbox.postgres(|sql| &sql.begun))
            .bind(at.group)
            .bind(ROWS_MAX)
            .fetch_all(self)
            .await
            .map_err(|error| refused(at, error))?;
        let begun = rows.iter().map(|row| {
            Ok(Begun {
                id: row.try_get(0)?,
                times: u32::try_from(row.try_get::<i32, _>(1)?).unwrap_or_default(),
            })
        });
        begun.collect()
    }

    async fn begins(&self, at: Place<'_>, event_id: Uuid, alone: bool) -> Result<Option<u32>, InboxError> {
        let begun: Option<i32> = sqlx::query_scalar(at.inbox.postgres(|sql| &sql.begins))
            .bind(at.group)
            .bind(event_id)
            .bind(alone)
            .fetch_optional(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(begun.map(|begun| u32::try_from(begun).unwrap_or_default()))
    }

    async fn ends(&self, at: Place<'_>, event_id: Uuid) -> Result<(), InboxError> {
        sqlx::query(at.inbox.postgres(|sql| &sql.ends))
            .bind(at.group)
            .bind(event_id)
            .execute(self)
            .await
            .map_err(|error| refused(at, error))?;
        Ok(())
    }
}

fn refused(at: Place<'_>, error: sqlx::Error) -> InboxError {
    at.inbox.attempts_error(is_missing_table(&error), error)
}
