//! The receiving side of a measurement, read with the bare client and without Pillarbox's code. Each
//! yardstick has its own stream or topic.

#[cfg(feature = "kafka")]
mod kafka;
mod nats;

use std::{sync::Arc, time::SystemTime};

use anyhow::Result;
use async_trait::async_trait;
use pillarbox_relay::{connect::SinkOptions, driver, sink::Outgoing};

use super::events::Mark;

/// Opens the receiving side of a sink, with the stream and topic of the measurement.
type Open = fn(&SinkOptions, stream: &str, topic: &str) -> Result<Arc<dyn Broker>>;

/// By the kind of the sink. A sink without an entry is measured too; then only the store says what was
/// delivered.
const BROKERS: &[(&str, Open)] = &[
    ("nats", nats::open),
    #[cfg(feature = "kafka")]
    ("kafka", kafka::open),
];

/// An event that arrived, and when.
pub(super) struct Arrival {
    pub(super) mark: Mark,
    pub(super) at: SystemTime,
}

/// A broker with a bare client.
#[async_trait]
pub(super) trait Broker: Send + Sync {
    /// How often to look: each look costs the broker something.
    fn look_every_ms(&self) -> u64;

    /// How many events have arrived so far.
    async fn arrived(&self) -> Result<u64>;

    /// Everything that arrived, in order per key.
    async fn read_back(&self, each: &mut (dyn FnMut(Arrival) + Send)) -> Result<()>;

    /// Publishes events from memory with up to `in_flight_max` in flight. Returns the seconds until all were
    /// stored.
    async fn pure(&self, events: Vec<Outgoing>, in_flight_max: usize) -> Result<f64>;

    async fn one_by_one(&self) -> Result<Box<dyn OneByOne>>;

    /// Drops everything that was created.
    async fn clear(&self) -> Result<()>;
}

/// Publishes one event after the other and waits for each, as a hand-written loop does.
#[async_trait]
pub(super) trait OneByOne: Send + Sync {
    async fn publish(&self, id: &str, payload: String) -> Result<()>;
}

/// Returns `None` if the sink has no receiving side that can be read.
pub(super) fn open(options: &SinkOptions, stream: &str, topic: &str) -> Result<Option<Arc<dyn Broker>>> {
    let kind = driver::sink(&options.url).map(|driver| driver.about.kind);
    let open = BROKERS.iter().find(|(of, _)| Some(*of) == kind);
    open.map(|(_, open)| open(options, stream, topic)).transpose()
}
