//! When the reprocessor ran, and which letters it may take.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    connection::{arguments, statement},
    dead, microseconds,
};
use crate::{dead::DeadFilter, reprocess::Schedules, store::StoreError};

#[async_trait]
impl Schedules for PostgresStore {
    async fn last_run(&self, name: &str) -> Result<(Timestamp, Option<Timestamp>), StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/reprocess/last.sql"));
        let row = self.connection.row(&sql, arguments!(name)?).await?;
        let read = self.read(&[row], |row| {
            let last: Option<i64> = row.try_get(1)?;
            Ok((dead::time(row.try_get(0)?), last.map(dead::time)))
        })?;
        Ok(read.into_iter().next().unwrap_or_default())
    }

    async fn claim_run(&self, name: &str, last: Option<Timestamp>) -> Result<bool, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/reprocess/claim.sql"));
        let arguments = arguments!(name, last.map(Timestamp::as_microsecond))?;
        let row = self.connection.row(&sql, arguments).await?;
        Ok(self.counted(&row)? == 1)
    }

    async fn candidates(
        &self,
        filter: &DeadFilter,
        min_age: Duration,
        times_max: u32,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        let sql = dead::filtered(
            self.connection.tables(),
            filter,
            include_str!("sql/reprocess/candidates.sql"),
        );
        let arguments = arguments!(
            in dead::arguments(filter)?;
            microseconds(min_age), i64::from(times_max), limit as i64
        )?;
        let rows = self.connection.rows(&sql, arguments).await?;
        self.read(&rows, |row| row.try_get(0))
    }
}
