use super::SqliteStore;
use crate::{dead::*, event::Seq, store::StoreError};
use async_trait::async_trait;
use std::time::Duration;
use uuid::Uuid;
#[async_trait]
impl DeadLetters for SqliteStore {
    async fn groups(&self, _: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError> {
        todo!()
    }
    async fn list(
        &self,
        _: &DeadFilter,
        _: Option<DeadState>,
        _: Option<Seq>,
        _: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        todo!()
    }
    async fn show(&self, _: Uuid) -> Result<Option<DeadDetails>, StoreError> {
        todo!()
    }
    async fn touched(&self, _: &DeadFilter) -> Result<Touched, StoreError> {
        todo!()
    }
    async fn replay(&self, _: &DeadFilter, _: usize, _: ReplayAs, _: &Actor) -> Result<usize, StoreError> {
        todo!()
    }
    async fn discard(&self, _: &DeadFilter, _: usize, _: &Actor) -> Result<usize, StoreError> {
        todo!()
    }
    async fn expire(&self, _: Duration, _: usize) -> Result<usize, StoreError> {
        todo!()
    }
}
