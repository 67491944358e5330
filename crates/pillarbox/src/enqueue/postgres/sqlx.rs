//! A transaction of sqlx. Its connection keeps the statements prepared.

use std::sync::Arc;

use sqlx::{
    AssertSqlSafe, Error, Postgres, Row as _, Transaction,
    postgres::{PgDatabaseError, PgRow},
};

use super::{Answer, Carrier, Columns, Failure, Row};
use crate::{
    enqueue::{EnqueueError, Enqueued, Outbox},
    event::Event,
    pressure::Pressure,
    transaction::{Transaction as OpenTransaction, sealed},
};

impl OpenTransaction for Transaction<'_, Postgres> {}

impl sealed::Write for Transaction<'_, Postgres> {
    async fn insert(&mut self, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        super::insert(self, outbox, events).await
    }

    async fn pressure(&mut self, outbox: &Outbox, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
        super::pressure(self, outbox, topic).await
    }
}

impl Carrier for Transaction<'_, Postgres> {
    async fn ask(&mut self, sql: &Arc<str>, topics: &[&str]) -> Result<Vec<Answer>, Failure> {
        let rows = sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(topics)
            .fetch_all(&mut **self)
            .await;
        answers(rows)
    }

    async fn lock(&mut self, sql: &Arc<str>, keys: &[&str], topics: &[&str]) -> Result<Vec<Answer>, Failure> {
        let rows = sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(keys)
            .bind(topics)
            .fetch_all(&mut **self)
            .await;
        answers(rows)
    }

    async fn write_one(&mut self, sql: &Arc<str>, row: &Row<'_>) -> Result<u64, Failure> {
        let event = row.event;
        let done = sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(&row.id)
            .bind(&event.topic)
            .bind(&event.stream)
            .bind(&event.event_type)
            .bind(event.schema_version)
            .bind(&event.aggregate_type)
            .bind(&event.aggregate_id)
            .bind(event.aggregate_version)
            .bind(&event.partition_key)
            .bind(row.payload)
            .bind(&row.headers)
            .bind(&event.project_id)
            .bind(&event.user_id)
            .bind(row.available_at)
            .bind(event.retry.max_attempts)
            .bind(event.retry.base_delay_ms)
            .bind(event.retry.max_delay_ms)
            .bind(event.retry.backoff_multiplier)
            .bind(&row.channel)
            .bind(row.asked)
            .execute(&mut **self)
            .await;
        done.map(|done| done.rows_affected()).map_err(failure)
    }

    async fn write(&mut self, sql: &Arc<str>, columns: &Columns<'_>) -> Result<Vec<Answer>, Failure> {
        let rows = sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(&columns.id)
            .bind(&columns.topic)
            .bind(&columns.stream)
            .bind(&columns.event_type)
            .bind(&columns.schema_version)
            .bind(&columns.aggregate_type)
            .bind(&columns.aggregate_id)
            .bind(&columns.aggregate_version)
            .bind(&columns.partition_key)
            .bind(&columns.payload)
            .bind(&columns.headers)
            .bind(&columns.project_id)
            .bind(&columns.user_id)
            .bind(&columns.available_at)
            .bind(&columns.max_attempts)
            .bind(&columns.base_delay_ms)
            .bind(&columns.max_delay_ms)
            .bind(&columns.backoff_multiplier)
            .bind(&columns.channel)
            .bind(&columns.topics)
            .fetch_all(&mut **self)
            .await;
        answers(rows)
    }
}

fn answers(rows: Result<Vec<PgRow>, Error>) -> Result<Vec<Answer>, Failure> {
    rows.and_then(|rows| rows.iter().map(answer).collect())
        .map_err(failure)
}

fn answer(row: &PgRow) -> Result<Answer, Error> {
    Ok(Answer {
        id: row.try_get(0)?,
        class: row.try_get(1)?,
        pending: row.try_get(2)?,
        soft: row.try_get(3)?,
        hard: row.try_get(4)?,
        oldest_ms: row.try_get(5)?,
        delay_ms: row.try_get(6)?,
        retry_after_ms: row.try_get(7)?,
        refused: row.try_get(8)?,
    })
}

fn failure(error: Error) -> Failure {
    let refusal = match &error {
        Error::Database(refusal) => refusal.try_downcast_ref::<PgDatabaseError>(),
        _ => None,
    };
    Failure {
        code: refusal.map(|refusal| refusal.code().to_owned()),
        constraint: refusal
            .and_then(|refusal| refusal.constraint())
            .map(str::to_owned),
        detail: refusal.and_then(|refusal| refusal.detail()).map(str::to_owned),
        error: error.into(),
    }
}
