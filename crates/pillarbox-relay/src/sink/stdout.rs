//! Placeholder.
use super::{Capabilities, Outcome, Outgoing, Sink, SinkError};
use async_trait::async_trait;
#[derive(Default)]
pub struct Stdout;
#[async_trait]
impl Sink for Stdout {
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
