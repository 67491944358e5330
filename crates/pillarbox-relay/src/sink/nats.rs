//! Placeholder.
use super::{Capabilities, Outcome, Outgoing, Sink, SinkError, StreamState, Streams};
use crate::connect::SinkOptions;
use async_trait::async_trait;
pub struct NatsSink;
impl NatsSink {
    pub fn open(_: &SinkOptions) -> Result<Self, SinkError> {
        Ok(Self)
    }
}
#[async_trait]
impl Sink for NatsSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }
    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        vec![Outcome::Delivered; batch.len()]
    }
}
#[async_trait]
impl Streams for NatsSink {
    async fn check_streams(&self) -> Result<Vec<StreamState>, SinkError> {
        Ok(vec![])
    }
    async fn apply_streams(&self) -> Result<Vec<StreamState>, SinkError> {
        Ok(vec![])
    }
}
