//! Backpressure: the figures that `enqueue` reads in the application's transaction.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::pressure::Limit;
use serde_json::json;
use sqlx::{Row, sqlite::SqliteRow};

use super::{
    SqliteStore,
    connection::{now, time},
};
use crate::{
    event::Seq,
    pressure::{Class, Figures, Gauge, Glance, Standing, TopicWaiting, Waiting},
    store::StoreError,
};

#[async_trait]
impl Gauge for SqliteStore {
    async fn set_classes(&self, classes: &[Class]) -> Result<(), StoreError> {
        let at = &*self.connections;
        let classes: Vec<_> = classes
            .iter()
            .enumerate()
            .map(|(place, class)| {
                let topics: Vec<&str> = class.topics.iter().map(|pattern| pattern.as_str()).collect();
                let limit = class.limit;
                // As text, as it lies in its column.
                let topics = json!(topics).to_string();
                json!([
                    place,
                    class.name,
                    topics,
                    limit.soft,
                    limit.hard,
                    limit.max_delay.as_millis() as u64
                ])
            })
            .collect();
        let classes = json!(classes).to_string();
        let mut tx = at.begin().await?;
        sqlx::query(at.statements.pressure_clear.clone())
            .bind(&classes)
            .execute(&mut *tx)
            .await
            .map_err(|e| at.error(e))?;
        sqlx::query(at.statements.pressure_set.clone())
            .bind(&classes)
            .bind(at.tables.name())
            .execute(&mut *tx)
            .await
            .map_err(|e| at.error(e))?;
        at.counted(2);
        at.commit(tx).await
    }

    async fn glance(&self, _enough: u64) -> Result<Glance, StoreError> {
        let at = &*self.connections;
        let (top, low, noted_at, noted_pending, measured_at): (Seq, Seq, Seq, i64, Option<i64>) =
            sqlx::query_as(at.statements.pressure_glance.clone())
                .bind(at.tables.name())
                .fetch_one(at.reader())
                .await
                .map_err(|e| at.error(e))?;
        Ok(Glance {
            waiting: count(top.saturating_sub(low)),
            at: top,
            noted_at,
            noted_pending: count(noted_pending),
            age: measured_at
                .filter(|&then| then > 0)
                .map(|then| Duration::from_micros(count(now().saturating_sub(then)))),
        })
    }

    async fn count(&self, top: Seq, limit: u64) -> Result<Waiting, StoreError> {
        let at = &*self.connections;
        let found: Vec<(String, i64, Seq, i64)> = sqlx::query_as(at.statements.pressure_count.clone())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        let counted: u64 = found.iter().map(|(_, n, _, _)| count(*n)).sum();
        let reached = found.iter().map(|(_, _, last, _)| *last).max().unwrap_or(0);
        let topic = |(topic, n, _, oldest): (String, i64, Seq, i64)| TopicWaiting {
            topic,
            count: count(n),
            oldest: Some(time(oldest)),
        };
        Ok(Waiting {
            topics: found.into_iter().map(topic).collect(),
            not_counted: if counted < limit {
                0
            } else {
                count(top.saturating_sub(reached))
            },
        })
    }

    async fn note(&self, figures: &Figures) -> Result<(), StoreError> {
        let at = &*self.connections;
        let mut tx = at.begin().await?;
        for (place, (pending, oldest)) in figures.classes.iter().enumerate() {
            sqlx::query(at.statements.pressure_note.clone())
                .bind(place as i64)
                .bind(i64::try_from(*pending).unwrap_or(i64::MAX))
                .bind(oldest.map(Timestamp::as_microsecond))
                .bind(figures.at)
                .bind(figures.drained)
                .bind(now())
                .execute(&mut *tx)
                .await
                .map_err(|e| at.error(e))?;
        }
        at.counted(figures.classes.len() as u64);
        at.commit(tx).await
    }
}

/// How fast the backlog shrinks is known for so long.
const FRESH: Duration = Duration::from_secs(10);

impl SqliteStore {
    /// How the classes stand for producers, by their formula.
    pub(super) async fn standing(&self) -> Result<Vec<Standing>, StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.pressure_standing.clone())
            .bind(at.tables.name())
            .fetch_all(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        let now = now();
        let since = |then: i64| Duration::from_micros(count(now.saturating_sub(then)));
        let standing = |row: &SqliteRow| -> Result<Standing, sqlx::Error> {
            let limit = Limit {
                soft: row.try_get::<Option<i64>, _>(1)?.map(count),
                hard: row.try_get::<Option<i64>, _>(2)?.map(count),
                // Nobody waits here: the one writer would keep all others waiting.
                max_delay: Duration::ZERO,
            };
            let oldest: Option<i64> = row.try_get(4)?;
            let drained: f64 = row.try_get(5)?;
            let drained = (since(row.try_get(6)?) < FRESH).then_some(drained);
            let pressure = limit.judge(
                row.try_get(0)?,
                count(row.try_get(3)?),
                oldest.map(since),
                drained,
            );
            Ok(pressure.into())
        };
        let standings: Result<_, _> = rows.iter().map(standing).collect();
        standings.map_err(|e| at.error(e))
    }
}

fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
