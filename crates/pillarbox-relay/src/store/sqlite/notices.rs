//! What people were told about dead letters.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{Row, sqlite::SqliteRow};

use super::{
    SqliteStore,
    connection::{micros, now, time},
    dead::{count, read},
    discover::{json, size},
};
use crate::{
    notice::{CAUSES_MAX, Claim, Delivery, Notices, OpenCause, Outcome, Telling, Told, ToldState},
    store::{StoreError, Trouble, trouble},
};

#[async_trait]
impl Notices for SqliteStore {
    async fn open(&self) -> Result<Vec<OpenCause>, StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.notices_open.clone())
            .bind(size(CAUSES_MAX))
            .fetch_all(at.reader())
            .await;
        read(at, rows, |row| {
            Ok(OpenCause {
                fingerprint: row.try_get(0)?,
                count: count(row, 1)?,
                last_died_at: time(row.try_get(2)?),
            })
        })
    }

    async fn died_since(&self, fingerprint: &str, after: Timestamp) -> Result<u64, StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.notices_since.clone())
            .bind(fingerprint)
            .bind(after.as_microsecond())
            .fetch_all(at.reader())
            .await;
        let died = read(at, rows, |row| count(row, 0))?;
        Ok(died.into_iter().next().unwrap_or_default())
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.notices_troubles.clone())
            .bind(now())
            .fetch_all(at.reader())
            .await;
        let troubles = read(at, rows, |row| Ok(trouble::from_json(row.try_get(0)?)))?;
        Ok(troubles.into_iter().flatten().collect())
    }

    async fn told(&self) -> Result<(Timestamp, Vec<Told>), StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.notices_told.clone())
            .bind(size(CAUSES_MAX))
            .fetch_all(at.reader())
            .await;
        Ok((time(now()), read(at, rows, told)?))
    }

    async fn tell(&self, telling: &Telling, channels: &[String]) -> Result<bool, StoreError> {
        let at = &*self.connections;
        let mut tx = at.begin().await?;
        let now = now();
        at.counted(2);
        let written = sqlx::query(at.statements.notices_tell.clone())
            .bind(now)
            .bind(&telling.fingerprint)
            .bind(telling.before as i64)
            .bind(telling.state.as_str())
            .bind(telling.count as i64)
            .bind(telling.last_died_at.as_microsecond())
            .bind(telling.about.to_string())
            .execute(&mut *tx)
            .await
            .map_err(|e| at.error(e))?;
        if written.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query(at.statements.notices_send.clone())
            .bind(now)
            .bind(&telling.fingerprint)
            .bind(telling.before as i64 + 1)
            .bind(telling.id.to_string())
            .bind(&telling.body)
            .bind(json(channels))
            .execute(&mut *tx)
            .await
            .map_err(|e| at.error(e))?;
        at.commit(tx).await?;
        Ok(true)
    }

    async fn outcome(&self, fingerprint: &str, since: Timestamp) -> Result<Outcome, StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.notices_outcome.clone())
            .bind(fingerprint)
            .bind(since.as_microsecond())
            .fetch_all(at.reader())
            .await;
        let outcome = read(at, rows, |row| {
            Ok(Outcome {
                replayed: count(row, 0)?,
                discarded: count(row, 1)?,
                waiting: count(row, 2)?,
            })
        })?;
        Ok(outcome.into_iter().next().unwrap_or_default())
    }

    async fn claim(&self, channel: &str, lease: Duration) -> Result<Claim, StoreError> {
        let at = &*self.connections;
        let now = now();
        // Looked at first: with nothing due, the file's write lock is left to others.
        let rows = sqlx::query(at.statements.notices_next.clone())
            .bind(channel)
            .fetch_all(at.reader())
            .await;
        let next = read(at, rows, |row| row.try_get::<Option<i64>, _>(0))?;
        let Some(next) = next.into_iter().flatten().next() else {
            return Ok(Claim::Nothing { next: None });
        };
        let waits = |until: i64| Claim::Nothing {
            next: Some(Duration::from_micros(u64::try_from(until - now).unwrap_or(0))),
        };
        if next > now {
            return Ok(waits(next));
        }
        let rows = sqlx::query(at.statements.notices_claim.clone())
            .bind(now)
            .bind(channel)
            .bind(now.saturating_add(micros(lease)))
            .fetch_all(at.writer())
            .await;
        match read(at, rows, delivery)?.pop() {
            Some(delivery) => Ok(Claim::One(Box::new(delivery))),
            // Another process was quicker.
            None => Ok(waits(now)),
        }
    }

    async fn delivered(&self, channel: &str, delivery: &Delivery) -> Result<(), StoreError> {
        let at = &*self.connections;
        sqlx::query(at.statements.notices_delivered.clone())
            .bind(channel)
            .bind(&delivery.fingerprint)
            .bind(delivery.n as i64)
            .execute(at.writer())
            .await
            .map(drop)
            .map_err(|e| at.error(e))
    }

    async fn failed(
        &self,
        channel: &str,
        delivery: &Delivery,
        retry_in: Option<Duration>,
        error: &str,
    ) -> Result<(), StoreError> {
        let at = &*self.connections;
        sqlx::query(at.statements.notices_failed.clone())
            .bind(channel)
            .bind(&delivery.fingerprint)
            .bind(delivery.n as i64)
            .bind(retry_in.map(|wait| now().saturating_add(micros(wait))))
            .bind(error)
            .execute(at.writer())
            .await
            .map(drop)
            .map_err(|e| at.error(e))
    }

    async fn forget(&self, age: Duration) -> Result<(), StoreError> {
        let at = &*self.connections;
        let before = now().saturating_sub(micros(age));
        for sql in [&at.statements.notices_forget_sends, &at.statements.notices_forget] {
            sqlx::query(sql.clone())
                .bind(before)
                .execute(at.writer())
                .await
                .map_err(|e| at.error(e))?;
        }
        Ok(())
    }
}

fn told(row: &SqliteRow) -> Result<Told, sqlx::Error> {
    Ok(Told {
        fingerprint: row.try_get(0)?,
        n: count(row, 1)?,
        state: ToldState::from_stored(row.try_get(2)?),
        count: count(row, 3)?,
        last_died_at: time(row.try_get(4)?),
        told_at: time(row.try_get(5)?),
        about: serde_json::from_str(row.try_get(6)?).unwrap_or_default(),
    })
}

fn delivery(row: &SqliteRow) -> Result<Delivery, sqlx::Error> {
    Ok(Delivery {
        fingerprint: row.try_get(0)?,
        n: count(row, 1)?,
        id: row.try_get::<&str, _>(2)?.parse().unwrap_or_default(),
        body: row.try_get(3)?,
        attempts: row.try_get(4)?,
    })
}
