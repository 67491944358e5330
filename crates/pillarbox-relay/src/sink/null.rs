//! Accepts everything and keeps nothing, to measure the cost of everything else.

use async_trait::async_trait;

use super::{Capabilities, Outcome, Outgoing, Sink, SinkError};

pub struct Null;

#[async_trait]
impl Sink for Null {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        vec![Outcome::Delivered; batch.len()]
    }
}
