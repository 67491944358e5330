//! Backpressure on SQLite. It is read in the transaction, and it only refuses and never delays: a delay would
//! block every other writer.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use super::explain;
use crate::{
    enqueue::{EnqueueError, Outbox},
    pressure::{Limit, Pressure, matches},
};

/// How long the drain rate of the backlog counts as known.
const FRESH_MICROS: i64 = 10_000_000;

/// A class and its topic patterns; no patterns means all topics.
pub(super) struct Class {
    patterns: Vec<String>,
    pressure: Pressure,
}

/// A class as `pressure.sql` returns it, with times in microseconds since 1970.
#[derive(Deserialize)]
struct Told {
    class: String,
    /// A JSON list.
    topics: String,
    soft: Option<i64>,
    hard: Option<i64>,
    max_delay_ms: i64,
    pending: i64,
    oldest_at: Option<i64>,
    drained: f64,
    measured_at: i64,
}

/// In their order: the first class that matches a topic counts.
pub(super) async fn classes(
    tx: &mut Transaction<'_, Sqlite>,
    outbox: &Outbox,
) -> Result<Vec<Class>, EnqueueError> {
    let sql = outbox.sqlite(|sql| &sql.pressure).clone();
    let told: String = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(outbox.tables().name())
        .fetch_one(&mut **tx)
        .await
        .map_err(|error| explain(outbox, None, error))?;
    let told: Vec<Told> =
        serde_json::from_str(&told).map_err(|error| EnqueueError::Database(error.into()))?;
    let now = Timestamp::now().as_microsecond();
    Ok(told.into_iter().map(|told| told.class(now)).collect())
}

impl Told {
    fn class(self, now: i64) -> Class {
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let limit = Limit {
            soft: self.soft.map(number),
            hard: self.hard.map(number),
            max_delay: Duration::from_millis(number(self.max_delay_ms)),
        };
        let oldest = self
            .oldest_at
            .map(|at| Duration::from_micros(number(now.saturating_sub(at))));
        let fresh = now.saturating_sub(self.measured_at) < FRESH_MICROS;
        Class {
            // Text that is not a list of patterns matches nothing.
            patterns: serde_json::from_str(&self.topics).unwrap_or_else(|_| vec![String::new()]),
            pressure: limit.judge(
                &self.class,
                number(self.pending),
                oldest,
                fresh.then_some(self.drained),
            ),
        }
    }
}

pub(super) fn of<'a>(classes: &'a [Class], topic: &str) -> Option<&'a Pressure> {
    let takes = |class: &&Class| {
        class.patterns.is_empty() || class.patterns.iter().any(|pattern| matches(pattern, topic))
    };
    classes.iter().find(takes).map(|class| &class.pressure)
}

pub(super) fn refusal<'a>(classes: &[Class], topics: impl Iterator<Item = &'a str>) -> Option<EnqueueError> {
    if classes.is_empty() {
        return None;
    }
    topics
        .filter_map(|topic| of(classes, topic))
        .find_map(EnqueueError::busy)
}
