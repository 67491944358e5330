//! SQLite: the embedded default. The relay and the application share a file in WAL mode: the application writes in its
//! own transactions while the relay reads.
//!
//! The parts follow an event: `discover` finds it, `settle` writes down what became of it, `park` knows what waits;
//! `lanes` says who may, `wake` when to look; `admin` and `dead` answer people. `connection` is what they stand
//! on.

mod admin;
mod after_death;
mod connection;
mod dead;
mod discover;
mod file;
mod lanes;
mod notices;
mod park;
mod pressure;
mod reprocess;
mod row;
mod settle;
mod statements;
mod taken;
mod versions;
mod wake;

#[doc(hidden)]
pub use self::statements::complete;
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::file::{exposed, make_private};
use self::{connection::Connections, discover::SqliteReader, wake::Watch};
use super::{
    Capabilities, Census, Due, DuePlace, HeldLane, PageLimit, Reader, RelayId, Settled, Store, StoreError,
    Trouble,
};
use crate::{connect::DatabaseOptions, event::Lane, settlement::Settlement};

pub struct SqliteStore {
    connections: Arc<Connections>,
    watch: Watch,
}

impl SqliteStore {
    /// Does not touch the disk: a file that is not there shows at the first use.
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
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            notify: true,
            shared: true,
            claims: false,
        }
    }

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
        park::due(&self.connections, held, after, limit).await
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        lanes::report(&self.connections, relay, troubles).await
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        park::blocked_keys(&self.connections, lanes).await
    }

    async fn wait(&self, at_most: Duration) {
        self.watch.wait(&self.connections, at_most).await;
    }

    fn statements(&self) -> u64 {
        self.connections.count()
    }
}
