//! Placeholder.
use super::{
    admin::{AdminEnqueueError, StoreStatus},
    *,
};
use crate::connect::DatabaseOptions;
use async_trait::async_trait;
use pillarbox::{Enqueued, Event, Limits};
use std::time::Duration;
pub struct PostgresStore;
fn no() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "placeholder")
}
impl PostgresStore {
    pub fn open(_: &DatabaseOptions) -> Result<Self, StoreError> {
        Ok(Self)
    }
}
#[async_trait]
impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    async fn check(&self) -> Result<(), StoreError> {
        Err(no())
    }
    async fn heartbeat(
        &self,
        _: RelayId,
        _: &str,
        _: Duration,
        _: &[HeldLane],
    ) -> Result<Census, StoreError> {
        Err(no())
    }
    async fn take_lanes(&self, _: RelayId, _: usize, _: Duration) -> Result<Vec<HeldLane>, StoreError> {
        Err(no())
    }
    async fn release_lanes(&self, _: RelayId, _: &[HeldLane]) -> Result<(), StoreError> {
        Err(no())
    }
    async fn leave(&self, _: RelayId) -> Result<(), StoreError> {
        Err(no())
    }
    fn reader(&self, _: &[HeldLane]) -> Box<dyn Reader> {
        unreachable!()
    }
    async fn settle(&self, _: &[HeldLane], _: &Settlement) -> Result<Settled, StoreError> {
        Err(no())
    }
    async fn due(&self, _: &[HeldLane], _: PageLimit) -> Result<Due, StoreError> {
        Err(no())
    }
    async fn blocked_keys(&self, _: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        Err(no())
    }
    fn statements(&self) -> u64 {
        0
    }
}
#[async_trait]
impl Admin for PostgresStore {
    fn migration_sql(&self) -> String {
        String::new()
    }
    async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        Err(no())
    }
    async fn status(&self) -> Result<StoreStatus, StoreError> {
        Err(no())
    }
    async fn enqueue(&self, _: &Limits, _: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError> {
        Err(no().into())
    }
}
