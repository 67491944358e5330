//! What people ask: how it stands, new tables, an event by hand.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Enqueued, Event, Limits};
use sqlx::{Row, postgres::PgRow};

use super::{
    PostgresStore,
    connection::{arguments, statement},
    row, schema,
};
use crate::{
    catalog::{EXAMPLE_BYTES_MAX, KINDS_MAX, Kind, Look},
    event::Seq,
    store::{
        Admin, StoreError,
        admin::{AdminEnqueueError, RECENT_PAYLOAD_BYTES_MAX, Recent, RelayStatus, StoreStatus},
        trouble,
    },
};

#[async_trait]
impl Admin for PostgresStore {
    fn migration_sql(&self) -> String {
        schema::sql(self.connection.tables())
    }

    async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        schema::migrate(&self.connection).await
    }

    async fn missing(&self) -> Result<Vec<String>, StoreError> {
        schema::missing_parts(&self.connection).await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let tables = self.connection.tables();
        let counts = statement(tables, include_str!("sql/admin/status.sql"));
        let relays = statement(tables, include_str!("sql/admin/relays.sql"));
        let counts = self.connection.row(&counts, arguments!()?).await?;
        let relays = self.connection.rows(&relays, arguments!()?).await?;
        let status = read(&counts, &relays).map_err(|e| self.connection.explain(e))?;
        Ok(StoreStatus {
            pressure: self.standing().await?,
            ..status
        })
    }

    async fn low_mark(&self) -> Result<Seq, StoreError> {
        let lowest = statement(self.connection.tables(), include_str!("sql/admin/low_mark.sql"));
        let row = self.connection.row(&lowest, arguments!()?).await?;
        row.try_get(0).map_err(|e| self.connection.explain(e))
    }

    async fn recent(&self, count: usize) -> Result<Vec<Recent>, StoreError> {
        let latest = statement(self.connection.tables(), include_str!("sql/admin/recent.sql"));
        let limits = Limits::default().payload_bytes_max(RECENT_PAYLOAD_BYTES_MAX);
        let (count, bytes) = (count as i64, RECENT_PAYLOAD_BYTES_MAX as i32);
        let rows = self.connection.rows(&latest, arguments!(count, bytes)?).await?;
        let mut recent = Vec::with_capacity(rows.len());
        for row in rows.iter().rev() {
            if let Ok(event) = row::event(row, 1, &limits) {
                let status = row.try_get(0).map_err(|e| self.connection.explain(e))?;
                recent.push(Recent { event, status });
            }
        }
        Ok(recent)
    }

    async fn kinds(&self, last: usize) -> Result<Look, StoreError> {
        let kinds = statement(self.connection.tables(), include_str!("sql/admin/kinds.sql"));
        let (last, most, bytes) = (last as i64, KINDS_MAX as i64, EXAMPLE_BYTES_MAX as i32);
        let rows = self
            .connection
            .rows(&kinds, arguments!(last, most, bytes)?)
            .await?;
        look(&rows).map_err(|e| self.connection.explain(e))
    }

    async fn enqueue(&self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError> {
        let outbox = self.connection.outbox().clone().limits(limits.clone());
        let mut tx = self.connection.begin().await?;
        let enqueued = outbox
            .enqueue_all(&mut tx, events)
            .await
            .map_err(|error| match error {
                // An outage is the store's to explain; a refusal is the event's.
                pillarbox::EnqueueError::Database(error) => match error.downcast::<sqlx::Error>() {
                    Ok(error) => AdminEnqueueError::Store(self.connection.explain(*error)),
                    Err(error) => AdminEnqueueError::Refused(pillarbox::EnqueueError::Database(error)),
                },
                error => AdminEnqueueError::Refused(error),
            })?;
        self.connection.commit(tx).await?;
        Ok(enqueued)
    }
}

fn read(counts: &PgRow, relays: &[PgRow]) -> Result<StoreStatus, sqlx::Error> {
    let count = |column: usize| counts.try_get::<i64, _>(column).map(|n| n.unsigned_abs());
    Ok(StoreStatus {
        pending: count(0)?,
        failed: count(1)?,
        held: count(2)?,
        delayed: count(3)?,
        dead: count(4)?,
        oldest_age: counts.try_get::<Option<i64>, _>(5)?.map(age),
        lanes_held: u16::try_from(count(6)?).unwrap_or(u16::MAX),
        relays: relays
            .iter()
            .map(|row| {
                Ok(RelayStatus {
                    id: row.try_get(0)?,
                    name: row.try_get(1)?,
                    last_seen: age(row.try_get(2)?),
                    lanes: u16::try_from(row.try_get::<i64, _>(3)?).unwrap_or(u16::MAX),
                    troubles: trouble::from_json(row.try_get(4)?),
                })
            })
            .collect::<Result<_, sqlx::Error>>()?,
        pressure: Vec::new(),
    })
}

/// The first two columns say of all of them how many there are and how old.
fn look(rows: &[PgRow]) -> Result<Look, sqlx::Error> {
    let Some(first) = rows.first() else {
        return Ok(Look::default());
    };
    let time = |row: &PgRow, column: usize| {
        let micros = row.try_get(column)?;
        Ok::<_, sqlx::Error>(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH))
    };
    let kind = |row: &PgRow| {
        Ok(Kind {
            event_type: row.try_get(2)?,
            schema_version: row.try_get(3)?,
            topic: row.try_get(4)?,
            stream: row.try_get(5)?,
            count: row.try_get::<i64, _>(6)?.unsigned_abs(),
            last_seen: time(row, 7)?,
            aggregate_type: row.try_get(8)?,
            payload: row.try_get::<Option<String>, _>(9)?.map(Into::into),
        })
    };
    Ok(Look {
        events: first.try_get::<i64, _>(0)?.unsigned_abs(),
        since: Some(time(first, 1)?),
        kinds: rows.iter().map(kind).collect::<Result<_, sqlx::Error>>()?,
    })
}

/// Clocks may step back.
fn age(microseconds: i64) -> Duration {
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
}
