//! The in-memory store passes the contract too. Otherwise the simulation, which uses it, would say little
//! about the real stores.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::{EnqueueError, Enqueued, Event, EventId, Limits};
use pillarbox_relay::store::{Admin, Store};
use pillarbox_testkit::memory::{MemoryStore, MemoryTransaction, Status};
use pillarbox_testkit::{
    contract::store::{OpenTransaction, Row, StoreHarness},
    store_contract,
};

#[derive(Default)]
struct Harness(MemoryStore);

impl Harness {
    fn find(&self, id: EventId) -> Option<pillarbox_testkit::memory::Row> {
        self.0.rows().into_iter().find(|row| row.stored.event.id == id)
    }
}

#[async_trait]
impl StoreHarness for Harness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    /// A clone shares the data, as another process shares the database.
    fn another(&self) -> Arc<dyn Store> {
        self.store()
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.0.clone())
    }

    /// The store is for the simulation, where nobody reads dead letters.
    fn dead_letters(&self) -> Option<Arc<dyn pillarbox_relay::dead::DeadLetters>> {
        None
    }

    fn records(&self) -> Arc<dyn pillarbox_relay::store::records::Records> {
        Arc::new(self.0.clone())
    }

    fn versions(&self) -> Option<Arc<dyn pillarbox_relay::check::versions::AggregateVersions>> {
        Some(Arc::new(self.0.clone()))
    }

    fn gauge(&self) -> Option<Arc<dyn pillarbox_relay::pressure::Gauge>> {
        None
    }

    fn event_log(&self) -> Option<Arc<dyn pillarbox_relay::event_log::EventLog>> {
        None
    }

    async fn lose_log_position(&self) -> bool {
        false
    }

    async fn begin(&self) -> Box<dyn OpenTransaction> {
        Box::new(Open(self.0.begin()))
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    /// The store keeps no times. An event counts as tried if an attempt was counted, and as published if its
    /// status says so.
    async fn row(&self, id: EventId) -> Option<Row> {
        let row = self.find(id)?;
        let status = match row.status {
            Status::Pending => "pending",
            Status::Failed => "failed",
            Status::Held => "held",
            Status::Delayed => "delayed",
            Status::Published => "published",
            Status::Dead => "dead",
        };
        Some(Row {
            status: status.into(),
            attempts: row.stored.attempts,
            last_error: row.last_error,
            first_attempt_at: row.stored.attempts > 0,
            last_attempt_at: row.stored.attempts > 0,
            published_at: row.status == Status::Published,
            dead_reason: row.dead_reason.map(|reason| reason.as_str().to_owned()),
        })
    }

    async fn corrupt(&self, id: EventId) -> bool {
        let row = self.find(id);
        row.as_ref()
            .inspect(|row| self.0.corrupt(row.stored.seq))
            .is_some()
    }
}

struct Open(MemoryTransaction);

#[async_trait]
impl OpenTransaction for Open {
    async fn enqueue(&mut self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        self.0.enqueue_all(limits, events)
    }

    async fn commit(self: Box<Self>) {
        self.0.commit();
    }

    async fn rollback(self: Box<Self>) {
        drop(self.0);
    }
}

/// Two subjects do not apply. This store can't wake a sleeping relay early, as its capabilities say. And it
/// only stores dead letters with their reasons; it has no operations on them.
mod contract {
    use super::*;

    async fn fresh() -> Option<Arc<dyn StoreHarness>> {
        Some(Arc::new(Harness::default()))
    }

    store_contract!(fresh);
}
