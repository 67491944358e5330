//! PostgreSQL: discovery by snapshot cursor, HOT updates for settling, leased lanes, and a side table for waiting
//! events.
//!
//! `discover` finds committed events and `assumptions` checks what discovery relies on. `settle` records the
//! results of events, `park` returns events from the side table, `lanes` shares the work among relays, `wake`
//! wakes them, `schema` creates the tables, `enqueue` the function for applications, and `adopt` connects a table that
//! a team already has. `admin` and `dead` are for people.

mod admin;
mod adopt;
mod after_death;
mod assumptions;
mod connection;
mod dead;
mod discover;
mod due;
mod enqueue;
mod error;
mod lanes;
mod marks;
mod pressure;
mod row;
mod schema;
mod seen;
mod seq_range;
mod settle;
mod shared;
mod snapshot;
mod versions;
mod wake;

#[doc(hidden)]
pub use self::{
    connection::PLANS,
    row::complete,
    settle::{BY_RANGE, BY_SEQ},
};
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use self::{assumptions::Assumptions, connection::Connection, seen::Seen, wake::Wakening};
use super::{
    Census, Due, DuePlace, HeldLane, PageLimit, Reader, RelayId, Settled, Store, StoreError, Trouble, Waker,
    sql,
};
use crate::{connect::DatabaseOptions, event::Lane, layout::Layout, settlement::Settlement};

/// An outbox in PostgreSQL 15 or newer.
pub struct PostgresStore {
    connection: Arc<Connection>,
    lanes: lanes::Statements,
    settle: settle::Statements,
    due: due::Statements,
    discover: Arc<discover::Statements>,
    assumptions: Arc<Assumptions>,
    seen: Arc<Seen>,
    wakening: Wakening,
    /// The table that this outbox serves, if it is not its own.
    layout: Option<Layout>,
}

impl PostgresStore {
    /// Does not connect yet.
    pub fn open(options: &DatabaseOptions) -> Result<Self, StoreError> {
        let connection = Arc::new(Connection::open(options)?);
        let tables = &options.tables;
        Ok(Self {
            lanes: lanes::Statements::new(tables),
            settle: settle::Statements::new(tables),
            due: due::Statements::new(tables),
            discover: Arc::new(discover::Statements::new(tables)),
            assumptions: Arc::new(Assumptions::new(tables)),
            seen: Arc::default(),
            wakening: Wakening::new(options, tables),
            layout: options.layout.clone(),
            connection,
        })
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn check(&self) -> Result<(), StoreError> {
        if let Some(layout) = &self.layout {
            adopt::check(&self.connection, layout).await?;
        }
        schema::check(&self.connection, &self.assumptions).await
    }

    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        self.assumptions.check_again(&self.connection).await?;
        self.lanes
            .heartbeat(&self.connection, &self.seen, relay, name, ttl, held)
            .await
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        self.lanes.take(&self.connection, relay, count, ttl).await
    }

    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError> {
        self.lanes
            .release(&self.connection, &self.seen, relay, lanes)
            .await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        self.lanes.leave(&self.connection, relay).await
    }

    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader> {
        Box::new(discover::SnapshotReader::new(
            self.connection.clone(),
            self.discover.clone(),
            self.assumptions.clone(),
            self.seen.clone(),
            lanes,
        ))
    }

    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        let logs = !settlement.logged.is_empty() || settlement.logged_dead().next().is_some();
        // The next statement may reach another server, where the log lacks entries that readers have seen.
        if logs && self.connection.was_away() {
            let checked = self.assumptions.check_now(&self.connection).await;
            checked.inspect_err(|_| self.connection.is_away())?;
        }
        self.settle.settle(&self.connection, held, settlement).await
    }

    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        self.due.due(&self.connection, held, after, limit).await
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        self.due.blocked_keys(&self.connection, lanes).await
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        self.lanes.report(&self.connection, relay, troubles).await
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        sql::troubles(&*self.connection).await
    }

    fn waker(&self) -> Option<&dyn Waker> {
        self.wakening.listens().then_some(self)
    }

    fn statements(&self) -> u64 {
        self.connection.statements()
    }
}

#[async_trait]
impl Waker for PostgresStore {
    async fn wait(&self, at_most: Duration) {
        self.wakening.wait(&self.connection, at_most).await;
    }

    async fn set_asleep(&self, asleep: bool) -> Result<(), StoreError> {
        self.wakening.set_asleep(&self.connection, asleep).await
    }
}

/// Lanes and epochs, as parameters of the statements.
fn lanes_and_epochs(held: &[HeldLane]) -> (Vec<i16>, Vec<i64>) {
    held.iter().map(|h| (i16::from(h.lane), h.epoch)).unzip()
}

/// A duration as a parameter of the statements: microseconds, at most a century.
fn microseconds(duration: Duration) -> i64 {
    const CENTURY: u128 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(duration.as_micros().min(CENTURY)).unwrap_or(i64::MAX)
}
