//! Delivers events to the event log, which the HTTP API serves at `/v1/stream`.
//!
//! The settlement that marks an event as published appends it to the log. So this sink only checks that the event can be
//! shown as JSON; the engine does the rest, because the sink's capabilities say so.

use async_trait::async_trait;
use serde::de::IgnoredAny;

use super::{Capabilities, Outcome, Outgoing, Sink, SinkError, in_order::in_order};
use crate::envelope::not_json;

pub struct HttpStream;

#[async_trait]
impl Sink for HttpStream {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            delivers_to_event_log: true,
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        in_order(batch, |outgoing| {
            serde_json::from_slice::<IgnoredAny>(&outgoing.event.event.payload)
                .map(drop)
                .map_err(|error| not_json(&error))
        })
    }
}
