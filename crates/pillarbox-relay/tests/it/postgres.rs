//! The PostgreSQL store on a real server. `PILLARBOX_TEST_POSTGRES` selects its version.

#![allow(clippy::unwrap_used)]

mod adapters;
mod agreement;
mod assumptions;
mod contract;
mod discovery;
mod event_log;
mod function;
mod fuzz;
mod order;
mod plans;
mod pressure;
mod schema;
mod writing;

use std::{sync::Arc, time::Duration};

use pillarbox::{Event, Limits, Outbox};
use pillarbox_relay::{
    Store, StoredEvent,
    connect::DatabaseOptions,
    store::{Admin, HeldLane, PageLimit, Reader, RelayId, postgres::PostgresStore},
};
use sqlx::PgPool;

const DEADLINE: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(600);

/// An outbox in a new database, with all lanes held.
struct Place {
    store: Arc<PostgresStore>,
    pool: PgPool,
    relay: RelayId,
    held: Vec<HeldLane>,
    url: String,
}

impl Place {
    async fn new(url: String) -> Self {
        let store = Arc::new(PostgresStore::open(&DatabaseOptions::new(&url)).unwrap());
        store.migrate().await.unwrap();
        let relay = RelayId::now_v7();
        let held = store.take_lanes(relay, 256, LEASE).await.unwrap();
        assert_eq!(held.len(), 256);
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(40)
            .connect(&url)
            .await
            .unwrap();
        Self {
            store,
            pool,
            relay,
            held,
            url,
        }
    }

    fn reader(&self) -> Box<dyn Reader> {
        self.store.reader(&self.held)
    }

    async fn run(&self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&self.pool)
            .await
            .unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    /// Takes all lanes as another relay would, after the leases of all others have ended.
    async fn take_again(&self) -> Vec<HeldLane> {
        self.run("update outbox_events_leases set lease_until = '-infinity'")
            .await;
        let held = self
            .store
            .take_lanes(RelayId::now_v7(), 256, LEASE)
            .await
            .unwrap();
        assert_eq!(held.len(), 256);
        held
    }

    /// Commits events of these keys in one transaction.
    async fn commit(&self, keys: &[&str]) -> Vec<Event> {
        let events: Vec<Event> = keys.iter().map(|key| event(key)).collect();
        let mut tx = self.pool.begin().await.unwrap();
        Outbox::default().enqueue_all(&mut tx, &events).await.unwrap();
        tx.commit().await.unwrap();
        events
    }
}

/// A place on the server that this test process shares. `None` if PostgreSQL is not installed.
async fn place() -> Option<Place> {
    let server = pillarbox_testkit::servers::postgres().await?;
    Some(Place::new(server.database().await).await)
}

fn event(key: &str) -> Event {
    Event::to("shop.order.placed")
        .event_type("OrderPlaced")
        .aggregate("order", key)
        .payload(format!("{{\"filler\":\"{}\"}}", "x".repeat(280)))
}

fn page(events: usize) -> PageLimit {
    PageLimit {
        events,
        bytes: 32 * 1024 * 1024,
        payload_bytes_max: Limits::default().payload_bytes_max,
    }
}

/// Reads everything that can be read now.
async fn drain(reader: &mut Box<dyn Reader>, limit: PageLimit) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    loop {
        let page = reader.next(limit).await.unwrap();
        events.extend(page.events);
        if !page.more {
            return events;
        }
    }
}

fn ids(events: &[StoredEvent]) -> Vec<pillarbox::EventId> {
    events.iter().map(|e| e.event.id.clone()).collect()
}

fn written(events: &[Event]) -> Vec<pillarbox::EventId> {
    events.iter().map(|e| e.id.clone()).collect()
}
