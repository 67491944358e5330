//! A connection of diesel-async, inside its `transaction` closure.

use std::sync::Arc;

use diesel::{
    QueryableByName,
    result::{DatabaseErrorKind, Error},
    sql_query,
    sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl, TransactionManager};

use super::{Answer, Carrier, Columns, Failure, Row};
use crate::{
    enqueue::{EnqueueError, Enqueued, Outbox},
    event::Event,
    pressure::Pressure,
    transaction::{Transaction, sealed},
};

impl Transaction for AsyncPgConnection {}

impl sealed::Write for AsyncPgConnection {
    async fn insert(&mut self, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        in_transaction(self)?;
        super::insert(self, outbox, events).await
    }

    async fn pressure(&mut self, outbox: &Outbox, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
        super::pressure(self, outbox, topic).await
    }
}

/// The type of a connection does not show whether a transaction is open, so check it here.
fn in_transaction(connection: &mut AsyncPgConnection) -> Result<(), EnqueueError> {
    type Manager = <AsyncPgConnection as diesel_async::AsyncConnection>::TransactionManager;
    let status =
        <Manager as TransactionManager<AsyncPgConnection>>::transaction_manager_status_mut(connection);
    match status.transaction_depth() {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(EnqueueError::NoTransaction),
        Err(error) => Err(EnqueueError::Database(error.into())),
    }
}

impl Carrier for AsyncPgConnection {
    async fn ask(&mut self, sql: &Arc<str>, topics: &[&str]) -> Result<Vec<Answer>, Failure> {
        let query = sql_query(&**sql).bind::<Array<Text>, _>(topics);
        query
            .get_results::<Answered>(self)
            .await
            .map(answers)
            .map_err(failure)
    }

    async fn lock(&mut self, sql: &Arc<str>, keys: &[&str], topics: &[&str]) -> Result<Vec<Answer>, Failure> {
        let query = sql_query(&**sql)
            .bind::<Array<Text>, _>(keys)
            .bind::<Array<Text>, _>(topics);
        query
            .get_results::<Answered>(self)
            .await
            .map(answers)
            .map_err(failure)
    }

    async fn write_one(&mut self, sql: &Arc<str>, row: &Row<'_>) -> Result<u64, Failure> {
        let event = row.event;
        let query = sql_query(&**sql)
            .bind::<Text, _>(&row.id)
            .bind::<Text, _>(&event.topic)
            .bind::<Nullable<Text>, _>(&event.stream)
            .bind::<Text, _>(&event.event_type)
            .bind::<Integer, _>(event.schema_version)
            .bind::<Text, _>(&event.aggregate_type)
            .bind::<Text, _>(&event.aggregate_id)
            .bind::<Nullable<BigInt>, _>(event.aggregate_version)
            .bind::<Nullable<Text>, _>(&event.partition_key)
            .bind::<Text, _>(row.payload)
            .bind::<Text, _>(&row.headers)
            .bind::<Nullable<Text>, _>(&event.project_id)
            .bind::<Nullable<Text>, _>(&event.user_id)
            .bind::<Nullable<BigInt>, _>(row.available_at)
            .bind::<Nullable<Integer>, _>(event.retry.max_attempts)
            .bind::<Nullable<BigInt>, _>(event.retry.base_delay_ms)
            .bind::<Nullable<BigInt>, _>(event.retry.max_delay_ms)
            .bind::<Nullable<Double>, _>(event.retry.backoff_multiplier)
            .bind::<Text, _>(&row.channel)
            .bind::<Nullable<Text>, _>(row.asked);
        let written = query.execute(self).await.map_err(failure)?;
        Ok(u64::try_from(written).unwrap_or(u64::MAX))
    }

    async fn write(&mut self, sql: &Arc<str>, columns: &Columns<'_>) -> Result<Vec<Answer>, Failure> {
        type Texts = Array<Text>;
        type MaybeTexts = Array<Nullable<Text>>;
        let query = sql_query(&**sql)
            .bind::<Texts, _>(&columns.id)
            .bind::<Texts, _>(&columns.topic)
            .bind::<MaybeTexts, _>(&columns.stream)
            .bind::<Texts, _>(&columns.event_type)
            .bind::<Array<Integer>, _>(&columns.schema_version)
            .bind::<Texts, _>(&columns.aggregate_type)
            .bind::<Texts, _>(&columns.aggregate_id)
            .bind::<Array<Nullable<BigInt>>, _>(&columns.aggregate_version)
            .bind::<MaybeTexts, _>(&columns.partition_key)
            .bind::<Texts, _>(&columns.payload)
            .bind::<Texts, _>(&columns.headers)
            .bind::<MaybeTexts, _>(&columns.project_id)
            .bind::<MaybeTexts, _>(&columns.user_id)
            .bind::<Array<Nullable<BigInt>>, _>(&columns.available_at)
            .bind::<Array<Nullable<Integer>>, _>(&columns.max_attempts)
            .bind::<Array<Nullable<BigInt>>, _>(&columns.base_delay_ms)
            .bind::<Array<Nullable<BigInt>>, _>(&columns.max_delay_ms)
            .bind::<Array<Nullable<Double>>, _>(&columns.backoff_multiplier)
            .bind::<Text, _>(&columns.channel)
            .bind::<Texts, _>(&columns.topics);
        query
            .get_results::<Answered>(self)
            .await
            .map(answers)
            .map_err(failure)
    }
}

#[derive(QueryableByName)]
struct Answered {
    #[diesel(sql_type = Nullable<Text>)]
    id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    class: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pending: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    soft: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    hard: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    oldest_ms: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    delay_ms: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    retry_after_ms: Option<i64>,
    #[diesel(sql_type = Nullable<Bool>)]
    refused: Option<bool>,
}

fn answers(rows: Vec<Answered>) -> Vec<Answer> {
    let answer = |row: Answered| Answer {
        id: row.id,
        class: row.class,
        pending: row.pending,
        soft: row.soft,
        hard: row.hard,
        oldest_ms: row.oldest_ms,
        delay_ms: row.delay_ms,
        retry_after_ms: row.retry_after_ms,
        refused: row.refused,
    };
    rows.into_iter().map(answer).collect()
}

/// diesel does not keep the SQLSTATE. Only the English message shows that something does not exist.
fn failure(error: Error) -> Failure {
    let (mut code, mut constraint, mut detail) = (None, None, None);
    if let Error::DatabaseError(kind, told) = &error {
        constraint = told.constraint_name().map(str::to_owned);
        detail = told.details().map(str::to_owned);
        let missing = ["relation", "schema", "function"]
            .iter()
            .any(|what| told.message().starts_with(what));
        if matches!(kind, DatabaseErrorKind::Unknown) && missing && told.message().ends_with("does not exist")
        {
            code = Some("42P01".to_owned());
        }
    }
    Failure {
        code,
        constraint,
        detail,
        error: error.into(),
    }
}
