//! A new SQLite file for each check, and the application's connections to it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use pillarbox::{EnqueueError, Enqueued, Event, EventId, Limits, Outbox, table::Tables};
use pillarbox_relay::{
    connect::{self, DatabaseOptions, OpenStore},
    dead::DeadLetters,
    store::{Admin, Store, records::Records},
};
use pillarbox_testkit::contract::store::{OpenTransaction, Row, StoreHarness};
use sqlx::{Sqlite, SqlitePool, Transaction, sqlite::SqliteConnectOptions};

pub(super) struct SqliteHarness {
    pub(super) store: OpenStore,
    pub(super) url: String,
    /// The application's own connections.
    pub(super) application: SqlitePool,
    _folder: tempfile::TempDir,
}

impl SqliteHarness {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outbox.db");
        let url = format!("sqlite:{}", path.display());
        let store = connect::store(&DatabaseOptions::new(&url)).unwrap();
        assert!(!path.exists(), "opening does not touch the disk");
        store.admin.migrate().await.unwrap();
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(Duration::from_secs(10));
        let application = SqlitePool::connect_with(options).await.unwrap();
        Self {
            store,
            url,
            application,
            _folder: folder,
        }
    }
}

#[async_trait]
impl StoreHarness for SqliteHarness {
    fn store(&self) -> Arc<dyn Store> {
        self.store.store.clone()
    }

    fn another(&self) -> Arc<dyn Store> {
        connect::store(&DatabaseOptions::new(&self.url)).unwrap().store
    }

    fn admin(&self) -> Arc<dyn Admin> {
        self.store.admin.clone()
    }

    fn dead_letters(&self) -> Option<Arc<dyn DeadLetters>> {
        Some(self.store.dead_letters.clone())
    }

    fn records(&self) -> Arc<dyn Records> {
        self.store.records.clone()
    }

    fn versions(&self) -> Option<Arc<dyn pillarbox_relay::check::versions::AggregateVersions>> {
        self.store.versions.clone()
    }

    fn gauge(&self) -> Option<Arc<dyn pillarbox_relay::pressure::Gauge>> {
        self.store.gauge.clone()
    }

    fn event_log(&self) -> Option<Arc<dyn pillarbox_relay::event_log::EventLog>> {
        self.store.event_log.clone()
    }

    async fn lose_log_position(&self) -> bool {
        false
    }

    async fn begin(&self) -> Box<dyn OpenTransaction> {
        Box::new(Open(
            self.application.begin_with("begin immediate").await.unwrap(),
        ))
    }

    fn concurrent_transactions(&self) -> bool {
        false
    }

    async fn row(&self, id: EventId) -> Option<Row> {
        let row: Option<(String, u32, Option<String>, bool, bool, bool, Option<String>)> = sqlx::query_as(
            "select e.status, e.attempts, e.last_error, e.first_attempt_at is not null,
                e.last_attempt_at is not null, e.published_at is not null, d.reason
             from outbox_events e left join outbox_events_dead d on d.seq = e.seq where e.id = ?",
        )
        .bind(id.to_string())
        .fetch_optional(&self.application)
        .await
        .unwrap();
        row.map(|row| Row {
            status: row.0,
            attempts: row.1,
            last_error: row.2,
            first_attempt_at: row.3,
            last_attempt_at: row.4,
            published_at: row.5,
            dead_reason: row.6,
        })
    }

    async fn corrupt(&self, id: EventId) -> bool {
        let done = sqlx::query("update outbox_events set payload = '{\"half\":' where id = ?")
            .bind(id.to_string())
            .execute(&self.application)
            .await
            .unwrap();
        done.rows_affected() == 1
    }
}

struct Open(Transaction<'static, Sqlite>);

#[async_trait]
impl OpenTransaction for Open {
    async fn enqueue(&mut self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        Outbox::new(Tables::default(), limits.clone())
            .enqueue_all(&mut self.0, events)
            .await
    }

    async fn commit(self: Box<Self>) {
        self.0.commit().await.unwrap();
    }

    async fn rollback(self: Box<Self>) {
        self.0.rollback().await.unwrap();
    }
}
