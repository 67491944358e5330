//! Backpressure: the figures that `enqueue` reads in the application's transaction.

use async_trait::async_trait;
use serde_json::json;

use super::SqliteStore;
use crate::{
    event::Seq,
    pressure::{Class, Figures, Gauge, Glance, Waiting},
    store::{StoreError, sql::pressure},
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
                // As text, as the column stores it.
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
        pressure::glance(&*self.connections, include_str!("sql/pressure/glance.sql")).await
    }

    async fn count(&self, at: Seq, limit: u64) -> Result<Waiting, StoreError> {
        let sql = include_str!("sql/pressure/count.sql");
        pressure::count(&*self.connections, sql, at, limit).await
    }

    async fn note(&self, figures: &Figures) -> Result<(), StoreError> {
        pressure::note(&*self.connections, figures).await
    }
}
