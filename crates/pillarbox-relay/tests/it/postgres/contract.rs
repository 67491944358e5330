//! The contract suite of stores, directly and through a transaction pooler.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::{EnqueueError, Enqueued, Event, EventId, Limits, Outbox, table::Tables};
use pillarbox_relay::{
    Store,
    connect::DatabaseOptions,
    dead::DeadLetters,
    store::{Admin, postgres::PostgresStore, records::Records},
};
use pillarbox_testkit::{
    contract::store::{OpenTransaction, Row, StoreHarness},
    servers::{self, Pgbouncer},
    store_contract,
};
use sqlx::{PgPool, Postgres, Row as _, Transaction};

struct Harness {
    store: Arc<PostgresStore>,
    options: DatabaseOptions,
    pool: PgPool,
}

struct Open(Transaction<'static, Postgres>);

/// The application and the operator connect to `direct`; the store uses `options`.
async fn harness(options: DatabaseOptions, direct: &str) -> Arc<dyn StoreHarness> {
    let store = Arc::new(PostgresStore::open(&options).unwrap());
    store.migrate().await.unwrap();
    let pool = PgPool::connect(direct).await.unwrap();
    Arc::new(Harness { store, options, pool })
}

#[async_trait]
impl StoreHarness for Harness {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn another(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(&self.options).unwrap())
    }

    fn admin(&self) -> Arc<dyn Admin> {
        self.store.clone()
    }

    fn dead_letters(&self) -> Option<Arc<dyn DeadLetters>> {
        Some(self.store.clone())
    }

    fn records(&self) -> Arc<dyn Records> {
        self.store.clone()
    }

    fn versions(&self) -> Option<Arc<dyn pillarbox_relay::check::versions::AggregateVersions>> {
        Some(self.store.clone())
    }

    fn gauge(&self) -> Option<Arc<dyn pillarbox_relay::pressure::Gauge>> {
        Some(self.store.clone())
    }

    fn event_log(&self) -> Option<Arc<dyn pillarbox_relay::event_log::EventLog>> {
        Some(self.store.clone())
    }

    async fn lose_log_position(&self) -> bool {
        sqlx::query("select nextval('outbox_events_log_position')")
            .execute(&self.pool)
            .await
            .unwrap();
        true
    }

    async fn begin(&self) -> Box<dyn OpenTransaction> {
        Box::new(Open(self.pool.begin().await.unwrap()))
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    async fn row(&self, id: EventId) -> Option<Row> {
        let row = sqlx::query(
            "select coalesce(nullif(p.state, 'blocked'), e.status), e.attempts, e.last_error, e.first_attempt_at is not null,
                    e.last_attempt_at is not null, e.published_at is not null, d.reason
             from outbox_events e
             left join outbox_events_parked p on p.seq = e.seq
             left join outbox_events_dead d on d.seq = e.seq
             where e.id = $1",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await
        .unwrap()?;
        Some(Row {
            status: row.get(0),
            attempts: row.get::<i32, _>(1).try_into().unwrap(),
            last_error: row.get(2),
            first_attempt_at: row.get(3),
            last_attempt_at: row.get(4),
            published_at: row.get(5),
            dead_reason: row.get(6),
        })
    }

    async fn corrupt(&self, id: EventId) -> bool {
        sqlx::query("alter domain outbox_events_json drop constraint if exists is_json")
            .execute(&self.pool)
            .await
            .unwrap();
        sqlx::query("update outbox_events set payload = '{torn' where id = $1")
            .bind(id)
            .execute(&self.pool)
            .await
            .unwrap();
        true
    }
}

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

mod direct {
    use super::*;

    async fn fresh() -> Option<Arc<dyn StoreHarness>> {
        let url = servers::postgres().await?.database().await;
        Some(harness(DatabaseOptions::new(&url), &url).await)
    }

    store_contract!(fresh);
}

mod through_a_transaction_pooler {
    use tokio::sync::OnceCell;

    use super::*;

    static POOLER: OnceCell<Option<Pgbouncer>> = OnceCell::const_new();

    async fn fresh() -> Option<Arc<dyn StoreHarness>> {
        let server = servers::postgres().await?;
        let pooler = POOLER.get_or_init(|| Pgbouncer::start(server)).await.as_ref()?;
        let url = server.database().await;
        let mut options = DatabaseOptions::new(pooler.through(&url));
        options.pooler = true;
        Some(harness(options, &url).await)
    }

    store_contract!(fresh);
}
