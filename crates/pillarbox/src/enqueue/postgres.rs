//! PostgreSQL: one statement for many events, through any of the libraries.
//!
//! The statements and the meaning of their answers are here; [`sqlx`], [`tokio_postgres`] and [`diesel`] only
//! run them.

mod columns;
#[cfg(feature = "diesel")]
mod diesel;
#[cfg(feature = "postgres")]
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::{collections::HashSet, sync::Arc, time::Duration};

use self::columns::{Columns, Row};
use super::{DatabaseError, EnqueueError, Enqueued, Outbox};
use crate::{event::Event, pressure::Pressure, statement::statements, table::Tables};

/// Events per statement. More events need several statements; memory stays bounded.
const STATEMENT_EVENTS_MAX: usize = 1_000;

statements! {
    pub(super) struct Statements {
        lock_keys: "postgres/lock_keys.sql",
        insert_one: "postgres/insert_one.sql",
        insert: "postgres/insert.sql",
        pressure: "postgres/pressure.sql",
    }
}

/// The channel on which a sleeping relay of this outbox listens.
pub fn channel(tables: &Tables) -> String {
    format!("pillarbox:{}", tables.name())
}

/// An open transaction of a library.
trait Carrier: Send {
    /// Runs `pressure.sql`.
    fn ask(
        &mut self,
        sql: &Arc<str>,
        topics: &[&str],
    ) -> impl Future<Output = Result<Vec<Answer>, Failure>> + Send;

    /// Runs `lock_keys.sql`.
    fn lock(
        &mut self,
        sql: &Arc<str>,
        keys: &[&str],
        topics: &[&str],
    ) -> impl Future<Output = Result<Vec<Answer>, Failure>> + Send;

    /// Runs `insert_one.sql` and returns how many events it wrote.
    fn write_one(
        &mut self,
        sql: &Arc<str>,
        row: &Row<'_>,
    ) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// Runs `insert.sql`.
    fn write(
        &mut self,
        sql: &Arc<str>,
        columns: &Columns<'_>,
    ) -> impl Future<Output = Result<Vec<Answer>, Failure>> + Send;
}

/// A row, the same for all statements: an event that was written, or the pressure on a class.
struct Answer {
    id: Option<String>,
    class: Option<String>,
    pending: Option<i64>,
    soft: Option<i64>,
    hard: Option<i64>,
    oldest_ms: Option<i64>,
    delay_ms: Option<i64>,
    retry_after_ms: Option<i64>,
    refused: Option<bool>,
}

/// The database's refusal, as far as the library reports it.
struct Failure {
    code: Option<String>,
    constraint: Option<String>,
    detail: Option<String>,
    error: DatabaseError,
}

async fn insert(
    tx: &mut impl Carrier,
    outbox: &Outbox,
    events: &[Event],
) -> Result<Vec<Enqueued>, EnqueueError> {
    // Check all topics before the first event is written, so that a refusal leaves nothing behind.
    let mut topics: Vec<&str> = events.iter().map(|event| event.topic.as_str()).collect();
    topics.sort_unstable();
    topics.dedup();
    if outbox.keys_are_serialised() {
        lock_keys(tx, outbox, events, &topics).await?;
        topics.clear();
    }
    if let [event] = events
        && write_one(tx, outbox, event, !topics.is_empty()).await?
    {
        return Ok(vec![Enqueued::New]);
    }
    write(tx, outbox, events, topics).await
}

/// Also checks the backpressure: a delay must not happen while the locks are held.
async fn lock_keys(
    tx: &mut impl Carrier,
    outbox: &Outbox,
    events: &[Event],
    topics: &[&str],
) -> Result<(), EnqueueError> {
    let sql = outbox.postgres(|sql| &sql.lock_keys);
    let keys: Vec<&str> = events.iter().map(Event::key).collect();
    let answers = tx
        .lock(sql, &keys, topics)
        .await
        .map_err(|failure| failure.explain(outbox, events))?;
    refused(&answers)
}

/// Whether the event was written. If not, [`write`] finds out why.
async fn write_one(
    tx: &mut impl Carrier,
    outbox: &Outbox,
    event: &Event,
    ask: bool,
) -> Result<bool, EnqueueError> {
    let sql = outbox.postgres(|sql| &sql.insert_one);
    let row = Row::of(event, ask, channel(outbox.tables()))?;
    let written = tx
        .write_one(sql, &row)
        .await
        .map_err(|failure| failure.explain(outbox, std::slice::from_ref(event)))?;
    Ok(written > 0)
}

async fn write(
    tx: &mut impl Carrier,
    outbox: &Outbox,
    events: &[Event],
    mut topics: Vec<&str>,
) -> Result<Vec<Enqueued>, EnqueueError> {
    let sql = outbox.postgres(|sql| &sql.insert);
    let mut enqueued = Vec::with_capacity(events.len());
    for events in events.chunks(STATEMENT_EVENTS_MAX) {
        let columns = Columns::of(events, std::mem::take(&mut topics), channel(outbox.tables()))?;
        let answers = tx
            .write(sql, &columns)
            .await
            .map_err(|failure| failure.explain(outbox, events))?;
        refused(&answers)?;
        let mut new: HashSet<String> = answers.into_iter().filter_map(|answer| answer.id).collect();
        enqueued.extend(events.iter().map(|event| {
            // Remove it: of two events with one id, the first was written.
            if event.id.with_text(|id| new.remove(id)) {
                Enqueued::New
            } else {
                Enqueued::Duplicate
            }
        }));
    }
    Ok(enqueued)
}

fn refused(answers: &[Answer]) -> Result<(), EnqueueError> {
    let busy = answers
        .iter()
        .filter_map(Answer::pressure)
        .find_map(|pressure| EnqueueError::busy(&pressure));
    busy.map_or(Ok(()), Err)
}

async fn pressure(
    tx: &mut impl Carrier,
    outbox: &Outbox,
    topic: &str,
) -> Result<Option<Pressure>, EnqueueError> {
    let sql = outbox.postgres(|sql| &sql.pressure);
    let answers = tx
        .ask(sql, &[topic])
        .await
        .map_err(|failure| failure.explain(outbox, &[]))?;
    Ok(answers.iter().find_map(Answer::pressure))
}

impl Answer {
    fn pressure(&self) -> Option<Pressure> {
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let millis = |n: Option<i64>| Duration::from_millis(n.map_or(0, number));
        Some(Pressure {
            class: self.class.clone()?,
            pending: self.pending.map_or(0, number),
            soft: self.soft.map(number),
            hard: self.hard.map(number),
            oldest: self.oldest_ms.map(|n| millis(Some(n))),
            delay: millis(self.delay_ms),
            refused: self.refused.unwrap_or(false),
            retry_after: millis(self.retry_after_ms),
        })
    }
}

impl Failure {
    fn explain(self, outbox: &Outbox, events: &[Event]) -> EnqueueError {
        let tables = outbox.tables();
        // A table, a schema or a function does not exist.
        if self
            .code
            .as_deref()
            .is_some_and(|code| ["42P01", "3F000", "42883"].contains(&code))
        {
            return EnqueueError::NotMigrated {
                table: tables.name().to_owned(),
                source: Some(self.error),
            };
        }
        let index = tables.index("unique_versions");
        let versions = self.constraint.as_deref() == Some(index.trim_matches('"'));
        match self.taken(events).filter(|_| versions) {
            Some((event, version)) => EnqueueError::VersionTaken {
                aggregate_type: event.aggregate_type.clone(),
                aggregate_id: event.aggregate_id.clone(),
                version,
                source: self.error,
            },
            None => EnqueueError::Database(self.error),
        }
    }

    /// The detail contains the version that is taken: `(…)=(order, o-1, 3) already exists`.
    fn taken<'a>(&self, events: &'a [Event]) -> Option<(&'a Event, i64)> {
        let mut versioned = events
            .iter()
            .filter_map(|event| Some((event, event.aggregate_version?)));
        let detail = self.detail.as_deref().unwrap_or_default();
        let shown = |event: &Event, version: i64| {
            detail.contains(&format!(
                "=({}, {}, {version})",
                event.aggregate_type, event.aggregate_id
            ))
        };
        match events {
            [_] => versioned.next(),
            _ => versioned.find(|(event, version)| shown(event, *version)),
        }
    }
}
