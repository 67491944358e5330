//! A transaction of tokio-postgres. The statement is sent with its types: that takes one round trip and
//! leaves nothing prepared in the session, which would not work with a pooler.

use std::sync::Arc;

use tokio_postgres::{
    Error, Row as Answered, Transaction,
    types::{ToSql, Type},
};

use super::{Answer, Carrier, Columns, Failure, Row};
use crate::{
    enqueue::{EnqueueError, Enqueued, Outbox},
    event::Event,
    pressure::Pressure,
    transaction::{Transaction as OpenTransaction, sealed},
};

impl OpenTransaction for Transaction<'_> {}

impl sealed::Write for Transaction<'_> {
    async fn insert(&mut self, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        super::insert(self, outbox, events).await
    }

    async fn pressure(&mut self, outbox: &Outbox, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
        super::pressure(self, outbox, topic).await
    }
}

impl Carrier for Transaction<'_> {
    async fn ask(&mut self, sql: &Arc<str>, topics: &[&str]) -> Result<Vec<Answer>, Failure> {
        answers(self.query_typed(sql, &[(&topics, Type::TEXT_ARRAY)]).await)
    }

    async fn lock(&mut self, sql: &Arc<str>, keys: &[&str], topics: &[&str]) -> Result<Vec<Answer>, Failure> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&keys, Type::TEXT_ARRAY), (&topics, Type::TEXT_ARRAY)];
        answers(self.query_typed(sql, &parameters).await)
    }

    async fn write_one(&mut self, sql: &Arc<str>, row: &Row<'_>) -> Result<u64, Failure> {
        let event = row.event;
        let parameters: [(&(dyn ToSql + Sync), Type); 20] = [
            (&row.id, Type::TEXT),
            (&event.topic, Type::TEXT),
            (&event.stream, Type::TEXT),
            (&event.event_type, Type::TEXT),
            (&event.schema_version, Type::INT4),
            (&event.aggregate_type, Type::TEXT),
            (&event.aggregate_id, Type::TEXT),
            (&event.aggregate_version, Type::INT8),
            (&event.partition_key, Type::TEXT),
            (&row.payload, Type::TEXT),
            (&row.headers, Type::TEXT),
            (&event.project_id, Type::TEXT),
            (&event.user_id, Type::TEXT),
            (&row.available_at, Type::INT8),
            (&event.retry.max_attempts, Type::INT4),
            (&event.retry.base_delay_ms, Type::INT8),
            (&event.retry.max_delay_ms, Type::INT8),
            (&event.retry.backoff_multiplier, Type::FLOAT8),
            (&row.channel, Type::TEXT),
            (&row.asked, Type::TEXT),
        ];
        self.execute_typed(sql, &parameters).await.map_err(failure)
    }

    async fn write(&mut self, sql: &Arc<str>, columns: &Columns<'_>) -> Result<Vec<Answer>, Failure> {
        let parameters: [(&(dyn ToSql + Sync), Type); 20] = [
            (&columns.id, Type::TEXT_ARRAY),
            (&columns.topic, Type::TEXT_ARRAY),
            (&columns.stream, Type::TEXT_ARRAY),
            (&columns.event_type, Type::TEXT_ARRAY),
            (&columns.schema_version, Type::INT4_ARRAY),
            (&columns.aggregate_type, Type::TEXT_ARRAY),
            (&columns.aggregate_id, Type::TEXT_ARRAY),
            (&columns.aggregate_version, Type::INT8_ARRAY),
            (&columns.partition_key, Type::TEXT_ARRAY),
            (&columns.payload, Type::TEXT_ARRAY),
            (&columns.headers, Type::TEXT_ARRAY),
            (&columns.project_id, Type::TEXT_ARRAY),
            (&columns.user_id, Type::TEXT_ARRAY),
            (&columns.available_at, Type::INT8_ARRAY),
            (&columns.max_attempts, Type::INT4_ARRAY),
            (&columns.base_delay_ms, Type::INT8_ARRAY),
            (&columns.max_delay_ms, Type::INT8_ARRAY),
            (&columns.backoff_multiplier, Type::FLOAT8_ARRAY),
            (&columns.channel, Type::TEXT),
            (&columns.topics, Type::TEXT_ARRAY),
        ];
        answers(self.query_typed(sql, &parameters).await)
    }
}

fn answers(rows: Result<Vec<Answered>, Error>) -> Result<Vec<Answer>, Failure> {
    rows.and_then(|rows| rows.iter().map(answer).collect())
        .map_err(failure)
}

fn answer(row: &Answered) -> Result<Answer, Error> {
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
    let refusal = error.as_db_error();
    Failure {
        code: refusal.map(|refusal| refusal.code().code().to_owned()),
        constraint: refusal
            .and_then(|refusal| refusal.constraint())
            .map(str::to_owned),
        detail: refusal.and_then(|refusal| refusal.detail()).map(str::to_owned),
        error: error.into(),
    }
}
