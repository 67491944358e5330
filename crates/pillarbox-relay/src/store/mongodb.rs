//! MongoDB: the outbox as collections of a replica set. Applications write to it in their own session.
//!
//! `discover` finds committed events, `settle` records their results, `park` returns events from the side table,
//! `lanes` shares the work among relays, `wake` wakes relays, and `schema` creates the collections. `admin` and
//! `dead` are for people. All of them use `connection` and `transaction`.

mod admin;
mod after_death;
mod assumptions;
mod batch;
mod connection;
mod dead;
mod decided;
mod discover;
mod document;
mod due;
mod error;
mod event_log;
mod field;
mod json;
mod keys;
mod kinds;
mod lanes;
mod pressure;
mod records;
mod rows;
mod schema;
mod settle;
mod transaction;
mod versions;
mod wake;

pub use self::rows::RowsStore;
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use self::{
    assumptions::Assumptions, connection::Connection, discover::MongoReader, lanes::Leases, wake::Wakening,
};
use super::{
    Census, Due, DuePlace, HeldLane, PageLimit, Reader, RelayId, Settled, Store, StoreError, Trouble, Waker,
};
use crate::{connect::DatabaseOptions, event::Lane, settlement::Settlement};

/// An outbox in MongoDB 6.0 or newer.
pub struct MongoStore {
    connection: Arc<Connection>,
    leases: Leases,
    assumptions: Assumptions,
    wakening: Wakening,
}

impl MongoStore {
    /// Does not connect yet.
    pub fn open(options: &DatabaseOptions) -> Result<Self, StoreError> {
        Ok(Self {
            connection: Arc::new(Connection::open(options)?),
            leases: Leases::default(),
            assumptions: Assumptions::default(),
            wakening: Wakening::new(options.notify),
        })
    }
}

#[async_trait]
impl Store for MongoStore {
    async fn check(&self) -> Result<(), StoreError> {
        schema::check(&self.connection).await?;
        self.assumptions.check(&self.connection).await
    }

    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        self.assumptions.check_again(&self.connection).await?;
        lanes::heartbeat(&self.connection, &self.leases, relay, name, ttl, held).await
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        lanes::take(&self.connection, &self.leases, relay, count, ttl).await
    }

    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError> {
        lanes::release(&self.connection, &self.leases, relay, lanes).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        lanes::leave(&self.connection, &self.leases, relay).await
    }

    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader> {
        Box::new(MongoReader::new(self.connection.clone(), lanes))
    }

    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        settle::settle(&self.connection, &self.leases, held, settlement).await
    }

    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        due::due(&self.connection, held, after, limit).await
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        due::blocked_keys(&self.connection, lanes).await
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        lanes::report(&self.connection, relay, troubles).await
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        lanes::troubles(&self.connection).await
    }

    fn waker(&self) -> Option<&dyn Waker> {
        self.wakening.listens().then_some(self)
    }

    fn statements(&self) -> u64 {
        self.connection.count()
    }
}

#[async_trait]
impl Waker for MongoStore {
    async fn wait(&self, at_most: Duration) {
        self.wakening.wait(at_most).await;
    }

    async fn set_asleep(&self, asleep: bool) -> Result<(), StoreError> {
        self.wakening.set_asleep(&self.connection, asleep).await;
        Ok(())
    }
}

/// A duration for pipelines, at most a century.
fn milliseconds(duration: Duration) -> i64 {
    const CENTURY: u128 = 100 * 366 * 86_400 * 1_000;
    i64::try_from(duration.as_millis().min(CENTURY)).unwrap_or(i64::MAX)
}
