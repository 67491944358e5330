//! SQLite: a prepared insert for each event, as a call into the library costs less than building one large statement.
//!
//! Begin the transaction with `begin immediate` (`pool.begin_with("begin immediate")`) when it reads before it writes:
//! SQLite can't let a reader become a writer when another has written meanwhile, and says so at once, whatever the busy
//! timeout.

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, SqlSafeStr, Sqlite, Transaction};

use super::{EnqueueError, Enqueued, Outbox, Transaction as OpenTransaction};
use crate::{event::Event, lane::lane_of};

const INSERT: &str = include_str!("sqlite.sql");

impl OpenTransaction for Transaction<'_, Sqlite> {
    async fn insert(&mut self, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        insert(self, outbox, events)
            .await
            .map_err(|error| outbox.database_error(is_missing_table(&error), error))
    }
}

async fn insert(
    tx: &mut Transaction<'_, Sqlite>,
    outbox: &Outbox,
    events: &[Event],
) -> Result<Vec<Enqueued>, sqlx::Error> {
    let insert = AssertSqlSafe(outbox.tables.render(INSERT)).into_sql_str();
    let now = Timestamp::now().as_microsecond();
    let mut enqueued = Vec::with_capacity(events.len());
    for event in events {
        let encode = |error: Box<dyn std::error::Error + Send + Sync>| sqlx::Error::Encode(error);
        let headers = serde_json::to_string(&event.headers).map_err(|e| encode(e.into()))?;
        let payload = std::str::from_utf8(&event.payload).map_err(|e| encode(e.into()))?;
        let done = sqlx::query::<Sqlite>(insert.clone())
            .bind(i64::from(lane_of(event.key())))
            .bind(event.id.to_string())
            .bind(&event.topic)
            .bind(&event.stream)
            .bind(&event.event_type)
            .bind(event.schema_version)
            .bind(&event.aggregate_type)
            .bind(&event.aggregate_id)
            .bind(event.aggregate_version)
            .bind(&event.partition_key)
            .bind(&event.project_id)
            .bind(&event.user_id)
            .bind(now)
            .bind(event.available_at.map(|at| at.as_microsecond()))
            .bind(event.retry.max_attempts)
            .bind(event.retry.base_delay_ms)
            .bind(event.retry.max_delay_ms)
            .bind(event.retry.backoff_multiplier)
            .bind(headers)
            .bind(payload)
            .execute(&mut **tx)
            .await?;
        enqueued.push(match done.rows_affected() {
            0 => Enqueued::Duplicate,
            _ => Enqueued::New,
        });
    }
    Ok(enqueued)
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().starts_with("no such table"))
}
