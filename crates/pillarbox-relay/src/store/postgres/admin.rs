//! Administration: the status of the outbox, migrations, and events written by hand.

use async_trait::async_trait;
use pillarbox::{Enqueued, Event, Limits};
use sqlx::Row;

use super::{
    PostgresStore,
    connection::{arguments, statement},
    row, schema,
};
use crate::{
    catalog::Look,
    event::Seq,
    store::{
        Admin, Sample, StoreError,
        admin::{AdminEnqueueError, RECENT_PAYLOAD_BYTES_MAX, Recent, StoreStatus},
        sql,
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
        let connection = &*self.connection;
        let (counts, relays) = (
            include_str!("sql/admin/status.sql"),
            include_str!("sql/admin/relays.sql"),
        );
        let standing = include_str!("sql/pressure/standing.sql");
        Ok(StoreStatus {
            pressure: sql::pressure::standing(connection, standing).await?,
            ..sql::admin::status(connection, counts, relays).await?
        })
    }

    async fn sample(&self) -> Result<Sample, StoreError> {
        let standing = include_str!("sql/pressure/standing.sql");
        Ok(Sample {
            pressure: sql::pressure::standing(&*self.connection, standing).await?,
            ..sql::admin::sample(&*self.connection, include_str!("sql/admin/sample.sql")).await?
        })
    }

    async fn low_mark(&self) -> Result<Seq, StoreError> {
        sql::admin::low_mark(&*self.connection, include_str!("sql/admin/low_mark.sql")).await
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
        sql::admin::kinds(&*self.connection, include_str!("sql/admin/kinds.sql"), last).await
    }

    async fn enqueue(&self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError> {
        let outbox = self.connection.outbox().clone().limits(limits.clone());
        let mut tx = self.connection.begin().await?;
        let enqueued = outbox.enqueue_all(&mut tx, events).await;
        let enqueued = enqueued.map_err(|error| sql::admin::enqueue_error(&*self.connection, error))?;
        self.connection.commit(tx).await?;
        Ok(enqueued)
    }
}
