//! PostgreSQL: any number of events in one statement.

use std::collections::HashSet;

use sqlx::{AssertSqlSafe, Postgres, Row, Transaction};
use uuid::Uuid;

use super::{EnqueueError, Enqueued, Outbox, Transaction as OpenTransaction};
use crate::{event::Event, table::Tables};

/// Events in one statement. More need several, and no more memory than that.
const STATEMENT_EVENTS_MAX: usize = 1_000;
/// PostgreSQL's calendar begins in 4713 BC; an event that was due long ago is due.
const YEAR_1: i64 = -62_135_596_800_000_000;

/// The channel on which a sleeping relay of this outbox listens.
pub fn channel(tables: &Tables) -> String {
    format!("pillarbox:{}", tables.name())
}

impl OpenTransaction for Transaction<'_, Postgres> {
    async fn insert(&mut self, outbox: &Outbox, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let sql = outbox.tables.render(include_str!("postgres/insert.sql"));
        let mut enqueued = Vec::with_capacity(events.len());
        for events in events.chunks(STATEMENT_EVENTS_MAX) {
            let mut new = insert(outbox, self, &sql, events)
                .await
                .map_err(|error| outbox.database_error(is_missing_table(&error), error))?;
            enqueued.extend(events.iter().map(|event| {
                // Taken out: of two with one id, the first was written.
                if new.remove(&event.id) {
                    Enqueued::New
                } else {
                    Enqueued::Duplicate
                }
            }));
        }
        Ok(enqueued)
    }
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(refusal) if refusal.code().is_some_and(|c| c == "42P01" || c == "3F000"))
}

/// Writes some events and says which of them were new.
async fn insert(
    outbox: &Outbox,
    tx: &mut Transaction<'_, Postgres>,
    sql: &str,
    events: &[Event],
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(column(events, |e| e.id))
        .bind(column(events, |e| e.topic.as_str()))
        .bind(column(events, |e| e.stream.as_deref()))
        .bind(column(events, |e| e.event_type.as_str()))
        .bind(column(events, |e| e.schema_version))
        .bind(column(events, |e| e.aggregate_type.as_str()))
        .bind(column(events, |e| e.aggregate_id.as_str()))
        .bind(column(events, |e| e.aggregate_version))
        .bind(column(events, |e| e.partition_key.as_deref()))
        .bind(payloads(events)?)
        .bind(headers(events)?)
        .bind(column(events, |e| e.project_id.as_deref()))
        .bind(column(events, |e| e.user_id.as_deref()))
        .bind(column(events, |e| {
            e.available_at.map(|at| at.as_microsecond().max(YEAR_1))
        }))
        .bind(column(events, |e| e.retry.max_attempts))
        .bind(column(events, |e| e.retry.base_delay_ms))
        .bind(column(events, |e| e.retry.max_delay_ms))
        .bind(column(events, |e| e.retry.backoff_multiplier))
        .bind(channel(&outbox.tables))
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

fn column<'a, T>(events: &'a [Event], field: impl Fn(&'a Event) -> T) -> Vec<T> {
    events.iter().map(field).collect()
}

/// Checked to be JSON, and so UTF-8, before.
fn payloads(events: &[Event]) -> Result<Vec<&str>, sqlx::Error> {
    events
        .iter()
        .map(|event| std::str::from_utf8(&event.payload).map_err(|e| sqlx::Error::Encode(e.into())))
        .collect()
}

fn headers(events: &[Event]) -> Result<Vec<String>, sqlx::Error> {
    events
        .iter()
        .map(|event| serde_json::to_string(&event.headers).map_err(|e| sqlx::Error::Encode(e.into())))
        .collect()
}
