//! Whether there is room. Read in the transaction; a refusal only, never a delay: it would keep every other writer waiting.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Row, Sqlite, Transaction, sqlite::SqliteRow};

use super::explain;
use crate::{
    enqueue::{EnqueueError, Outbox},
    pressure::{Limit, Pressure, matches},
};

/// How fast the backlog shrinks is known for so long.
const FRESH_MICROS: i64 = 10_000_000;

/// A class and the patterns of its topics; none: all topics.
pub(super) struct Class {
    patterns: Vec<String>,
    pressure: Pressure,
}

/// In their order: of those a topic matches, the first counts.
pub(super) async fn classes(
    tx: &mut Transaction<'_, Sqlite>,
    outbox: &Outbox,
) -> Result<Vec<Class>, EnqueueError> {
    let sql = outbox.tables().render(include_str!("pressure.sql"));
    let rows = sqlx::query::<Sqlite>(AssertSqlSafe(sql))
        .bind(outbox.tables().name())
        .fetch_all(&mut **tx)
        .await;
    let now = Timestamp::now().as_microsecond();
    rows.and_then(|rows| rows.iter().map(|row| class(row, now)).collect())
        .map_err(|error| explain(outbox, None, error))
}

fn class(row: &SqliteRow, now: i64) -> Result<Class, sqlx::Error> {
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    let limit = Limit {
        soft: row.try_get::<Option<i64>, _>(2)?.map(number),
        hard: row.try_get::<Option<i64>, _>(3)?.map(number),
        max_delay: Duration::from_millis(number(row.try_get(4)?)),
    };
    let oldest: Option<i64> = row.try_get(6)?;
    let oldest = oldest.map(|at| Duration::from_micros(number(now.saturating_sub(at))));
    let fresh = now.saturating_sub(row.try_get(8)?) < FRESH_MICROS;
    let drained: f64 = row.try_get(7)?;
    let pending = number(row.try_get(5)?);
    Ok(Class {
        // What is no list of patterns matches nothing.
        patterns: serde_json::from_str(row.try_get(1)?).unwrap_or_else(|_| vec![String::new()]),
        pressure: limit.judge(row.try_get(0)?, pending, oldest, fresh.then_some(drained)),
    })
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
