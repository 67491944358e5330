//! SQLite: the embedded default. The relay and the application share a file in WAL mode: the application writes in
//! its own transactions while the relay reads.
//!
//! `discover` finds committed events and `assumptions` checks what it relies on. `settle` records results, `park` returns events from the side table,
//! `lanes` shares the work among relays, and `wake` says when to look. `admin` and `dead` are for people. All of
//! them use `connection`.

mod admin;
mod after_death;
mod assumptions;
mod connection;
mod dead;
mod discover;
mod due;
mod file;
mod lanes;
mod pressure;
mod row;
mod settle;
mod shared;
mod statements;
mod versions;
mod wake;

#[doc(hidden)]
pub use self::statements::complete;
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::file::{exposed, make_private};
use self::{connection::Connections, discover::SqliteReader, wake::Watch};
use super::{
    Census, Due, DuePlace, HeldLane, PageLimit, Reader, RelayId, Settled, Store, StoreError, Trouble, Waker,
    sql,
};
use crate::{connect::DatabaseOptions, event::Lane, settlement::Settlement};

pub struct SqliteStore {
    connections: Arc<Connections>,
    watch: Watch,
}

impl SqliteStore {
    /// Does not touch the disk. A missing file is an error at the first use.
    pub fn open(options: &DatabaseOptions) -> Result<Self, StoreError> {
        let connections = Arc::new(Connections::new(options)?);
        Ok(Self {
            watch: Watch::new(&connections.path),
            connections,
        })
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn check(&self) -> Result<(), StoreError> {
        admin::check(&self.connections).await
    }

    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        lanes::heartbeat(&self.connections, relay, name, ttl, held).await
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        lanes::take(&self.connections, relay, count, ttl).await
    }

    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError> {
        lanes::release(&self.connections, relay, lanes).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        lanes::leave(&self.connections, relay).await
    }

    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader> {
        Box::new(SqliteReader::new(self.connections.clone(), lanes))
    }

    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        settle::settle(&self.connections, held, settlement).await
    }

    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        due::due(&self.connections, held, after, limit).await
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        lanes::report(&self.connections, relay, troubles).await
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        due::blocked_keys(&self.connections, lanes).await
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        sql::troubles(&*self.connections).await
    }

    fn waker(&self) -> Option<&dyn Waker> {
        Some(self)
    }

    fn statements(&self) -> u64 {
        self.connections.count()
    }
}

#[async_trait]
impl Waker for SqliteStore {
    async fn wait(&self, at_most: Duration) {
        self.watch.wait(&self.connections, at_most).await;
    }
}
