//! SQLite: a prepared insert per event. A call into the library costs less than building one large statement.
//!
//! Begin the transaction with `begin immediate` (`pool.begin_with("begin immediate")`) if it reads before it
//! writes. Otherwise SQLite refuses the write at once if another transaction has written meanwhile, whatever
//! the busy timeout. An event that is refused also makes the transaction a writer.

mod pressure;

use std::sync::Arc;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Sqlite, Transaction, query::Query, sqlite::SqliteArguments};

use super::{EnqueueError, Enqueued, Outbox};
use crate::{
    event::Event,
    lane::lane_of,
    pressure::Pressure,
    statement::statements,
    transaction::{Transaction as OpenTransaction, sealed},
};

statements! {
    pub(super) struct Statements {
        insert_one: "sqlite/insert_one.sql",
        insert: "sqlite/insert.sql",
        pressure: "sqlite/pressure.sql",
    }
}

type Insert<'a> = Query<'a, Sqlite, SqliteArguments>;

impl OpenTransaction for Transaction<'_, Sqlite> {}

impl sealed::Write for Transaction<'_, Sqlite> {
    async fn insert(&mut self, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let now = Timestamp::now().as_microsecond();
        if let [event] = events {
            let sql = outbox.sqlite(|sql| &sql.insert_one);
            let insert = filled(sql, event, now)?.bind(outbox.tables().name());
            if execute(self, outbox, event, insert).await? == Enqueued::New {
                return Ok(vec![Enqueued::New]);
            }
        }
        let classes = pressure::classes(self, outbox).await?;
        let topics = events.iter().map(|event| event.topic.as_str());
        if let Some(busy) = pressure::refusal(&classes, topics) {
            return Err(busy);
        }
        let sql = outbox.sqlite(|sql| &sql.insert);
        let mut enqueued = Vec::with_capacity(events.len());
        for event in events {
            enqueued.push(execute(self, outbox, event, filled(sql, event, now)?).await?);
        }
        Ok(enqueued)
    }

    async fn pressure(&mut self, outbox: &Outbox, topic: &str) -> Result<Option<Pressure>, EnqueueError> {
        let classes = pressure::classes(self, outbox).await?;
        Ok(pressure::of(&classes, topic).cloned())
    }
}

/// Binds this event's columns; both inserts number them in the same way.
fn filled<'a>(sql: &Arc<str>, event: &'a Event, now: i64) -> Result<Insert<'a>, EnqueueError> {
    let encode = |error: Box<dyn std::error::Error + Send + Sync>| sqlx::Error::Encode(error);
    let headers = serde_json::to_string(&event.headers).map_err(|e| encode(e.into()))?;
    let payload = std::str::from_utf8(&event.payload).map_err(|e| encode(e.into()))?;
    Ok(sqlx::query::<Sqlite>(AssertSqlSafe(sql.clone()))
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
        .bind(payload))
}

async fn execute(
    tx: &mut Transaction<'_, Sqlite>,
    outbox: &Outbox,
    event: &Event,
    insert: Insert<'_>,
) -> Result<Enqueued, EnqueueError> {
    let done = insert
        .execute(&mut **tx)
        .await
        .map_err(|error| explain(outbox, Some(event), error))?;
    Ok(match done.rows_affected() {
        0 => Enqueued::Duplicate,
        _ => Enqueued::New,
    })
}

/// Converts an error of the database's library.
fn explain(outbox: &Outbox, event: Option<&Event>, error: sqlx::Error) -> EnqueueError {
    let Some(refusal) = error.as_database_error() else {
        return error.into();
    };
    if refusal.message().starts_with("no such table") {
        return EnqueueError::NotMigrated {
            table: outbox.tables().name().to_owned(),
            source: Some(error.into()),
        };
    }
    // SQLite names the unique index on versions by its columns.
    let versions = refusal.is_unique_violation() && refusal.message().contains(".aggregate_version");
    match event.and_then(|event| Some((event, event.aggregate_version?))) {
        Some((event, version)) if versions => EnqueueError::VersionTaken {
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone(),
            version,
            source: error.into(),
        },
        _ => error.into(),
    }
}
