//! What people were told about dead letters.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{Row, postgres::PgRow};

use super::{
    PostgresStore,
    connection::{arguments, statement},
    dead::{count, time},
    microseconds,
};
use crate::{
    notice::{CAUSES_MAX, Claim, Delivery, Notices, OpenCause, Outcome, Telling, Told, ToldState},
    store::{StoreError, Trouble, trouble},
};

#[async_trait]
impl Notices for PostgresStore {
    async fn open(&self) -> Result<Vec<OpenCause>, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/open.sql"));
        let rows = self.connection.rows(&sql, arguments!(CAUSES_MAX as i64)?).await?;
        self.read(&rows, |row| {
            Ok(OpenCause {
                fingerprint: row.try_get(0)?,
                count: count(row, 1)?,
                last_died_at: time(row.try_get(2)?),
            })
        })
    }

    async fn died_since(&self, fingerprint: &str, after: Timestamp) -> Result<u64, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/since.sql"));
        let arguments = arguments!(fingerprint, after.as_microsecond())?;
        let row = self.connection.row(&sql, arguments).await?;
        Ok(self.counted(&row)? as u64)
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/troubles.sql"));
        let rows = self.connection.rows(&sql, arguments!()?).await?;
        let troubles = self.read(&rows, |row| Ok(trouble::from_json(row.try_get(0)?)))?;
        Ok(troubles.into_iter().flatten().collect())
    }

    async fn told(&self) -> Result<(Timestamp, Vec<Told>), StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/told.sql"));
        let rows = self.connection.rows(&sql, arguments!(CAUSES_MAX as i64)?).await?;
        let mut now = Timestamp::UNIX_EPOCH;
        let told = self.read(&rows, |row| {
            now = time(row.try_get(0)?);
            told(row)
        })?;
        Ok((now, told.into_iter().flatten().collect()))
    }

    async fn tell(&self, telling: &Telling, channels: &[String]) -> Result<bool, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/tell.sql"));
        let arguments = arguments!(
            &telling.fingerprint,
            telling.before as i64,
            telling.state.as_str(),
            telling.count as i64,
            telling.last_died_at.as_microsecond(),
            telling.about.to_string(),
            telling.id,
            &telling.body,
            channels
        )?;
        let row = self.connection.row(&sql, arguments).await?;
        Ok(self.counted(&row)? == 1)
    }

    async fn outcome(&self, fingerprint: &str, since: Timestamp) -> Result<Outcome, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/outcome.sql"));
        let arguments = arguments!(fingerprint, since.as_microsecond())?;
        let row = self.connection.row(&sql, arguments).await?;
        let outcome = self.read(&[row], |row| {
            Ok(Outcome {
                replayed: count(row, 0)?,
                discarded: count(row, 1)?,
                waiting: count(row, 2)?,
            })
        })?;
        Ok(outcome.into_iter().next().unwrap_or_default())
    }

    async fn claim(&self, channel: &str, lease: Duration) -> Result<Claim, StoreError> {
        let tables = self.connection.tables();
        let sql = statement(tables, include_str!("sql/notices/claim.sql"));
        let rows = (self.connection)
            .rows(&sql, arguments!(channel, microseconds(lease))?)
            .await?;
        if let Some(delivery) = self.read(&rows, delivery)?.pop() {
            return Ok(Claim::One(Box::new(delivery)));
        }
        let sql = statement(tables, include_str!("sql/notices/next.sql"));
        let row = self.connection.row(&sql, arguments!(channel)?).await?;
        let next = self.read(&[row], |row| row.try_get::<Option<i64>, _>(0))?;
        let next = next.into_iter().flatten().next();
        Ok(Claim::Nothing {
            next: next.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
        })
    }

    async fn delivered(&self, channel: &str, delivery: &Delivery) -> Result<(), StoreError> {
        let sql = statement(
            self.connection.tables(),
            include_str!("sql/notices/delivered.sql"),
        );
        let arguments = arguments!(channel, &delivery.fingerprint, delivery.n as i64)?;
        self.connection.rows(&sql, arguments).await.map(drop)
    }

    async fn failed(
        &self,
        channel: &str,
        delivery: &Delivery,
        retry_in: Option<Duration>,
        error: &str,
    ) -> Result<(), StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/failed.sql"));
        let retry_in = retry_in.map(microseconds);
        // PostgreSQL's text can't hold a NUL.
        let error = error.replace('\0', "");
        let arguments = arguments!(channel, &delivery.fingerprint, delivery.n as i64, retry_in, error)?;
        self.connection.rows(&sql, arguments).await.map(drop)
    }

    async fn forget(&self, age: Duration) -> Result<(), StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/notices/forget.sql"));
        self.connection
            .rows(&sql, arguments!(microseconds(age))?)
            .await
            .map(drop)
    }
}

/// `None`: nothing was ever told, and the row is only the time.
fn told(row: &PgRow) -> Result<Option<Told>, sqlx::Error> {
    let Some(fingerprint) = row.try_get(1)? else {
        return Ok(None);
    };
    Ok(Some(Told {
        fingerprint,
        n: count(row, 2)?,
        state: ToldState::from_stored(row.try_get(3)?),
        count: count(row, 4)?,
        last_died_at: time(row.try_get(5)?),
        told_at: time(row.try_get(6)?),
        about: serde_json::from_str(row.try_get(7)?).unwrap_or_default(),
    }))
}

fn delivery(row: &PgRow) -> Result<Delivery, sqlx::Error> {
    Ok(Delivery {
        fingerprint: row.try_get(0)?,
        n: count(row, 1)?,
        id: row.try_get(2)?,
        body: row.try_get(3)?,
        attempts: u32::try_from(row.try_get::<i32, _>(4)?).unwrap_or_default(),
    })
}
