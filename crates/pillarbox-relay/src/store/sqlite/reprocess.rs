//! When the reprocessor ran, and which letters it may take.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Row;
use uuid::Uuid;

use super::{
    SqliteStore,
    connection::{micros, now, time},
    dead::{filtered, read},
    discover::size,
};
use crate::{dead::DeadFilter, reprocess::Schedules, store::StoreError};

#[async_trait]
impl Schedules for SqliteStore {
    async fn last_run(&self, name: &str) -> Result<(Timestamp, Option<Timestamp>), StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.reprocess_last.clone())
            .bind(name)
            .fetch_all(at.reader())
            .await;
        let last = read(at, rows, |row| row.try_get(0).map(time))?;
        Ok((time(now()), last.into_iter().next()))
    }

    async fn claim_run(&self, name: &str, last: Option<Timestamp>) -> Result<bool, StoreError> {
        let at = &*self.connections;
        let written = sqlx::query(at.statements.reprocess_claim.clone())
            .bind(now())
            .bind(name)
            .bind(last.map(Timestamp::as_microsecond))
            .execute(at.writer())
            .await
            .map_err(|e| at.error(e))?;
        Ok(written.rows_affected() == 1)
    }

    async fn candidates(
        &self,
        filter: &DeadFilter,
        min_age: Duration,
        times_max: u32,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        let at = &*self.connections;
        let rows = filtered(&at.statements.reprocess_candidates, filter)
            .bind(now().saturating_sub(micros(min_age)))
            .bind(times_max)
            .bind(size(limit))
            .fetch_all(at.reader())
            .await;
        read(at, rows, |row| {
            Ok(row.try_get::<&str, _>(0)?.parse().unwrap_or_default())
        })
    }
}
