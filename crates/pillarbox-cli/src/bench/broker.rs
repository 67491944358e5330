//! The other side of a measurement, by its bare client and without anything of ours: a place of its own for each
//! yardstick, and what arrived there.

#[cfg(feature = "kafka")]
mod kafka;
mod nats;

use std::{sync::Arc, time::SystemTime};

use anyhow::Result;
use async_trait::async_trait;
use pillarbox_relay::{connect::SinkOptions, driver, sink::Outgoing};

use super::events::Mark;

/// Makes the other side of a sink. Stream and topic are the measurement's own.
type Open = fn(&SinkOptions, stream: &str, topic: &str) -> Result<Arc<dyn Broker>>;

/// By the kind of the sink. A sink without an entry is measured too: then only the store tells what was delivered.
const BROKERS: &[(&str, Open)] = &[
    ("nats", nats::open),
    #[cfg(feature = "kafka")]
    ("kafka", kafka::open),
];

/// Something that arrived, and when.
pub(super) struct Arrival {
    pub(super) mark: Mark,
    pub(super) at: SystemTime,
}

/// A broker with a client of its own.
#[async_trait]
pub(super) trait Broker: Send + Sync {
    /// Looking costs the other side something.
    fn look_every_ms(&self) -> u64;

    /// How many events have arrived so far.
    async fn arrived(&self) -> Result<u64>;

    /// Everything that arrived, of each key in its order.
    async fn read_back(&self, each: &mut (dyn FnMut(Arrival) + Send)) -> Result<()>;

    /// Publishes events from memory, with as many unacknowledged at once; the seconds until all were there.
    async fn pure(&self, events: Vec<Outgoing>, in_flight_max: usize) -> Result<f64>;

    async fn one_by_one(&self) -> Result<Box<dyn OneByOne>>;

    /// Drops what was made.
    async fn clear(&self) -> Result<()>;
}

/// Publishes one event after the other and waits for each, as one does by hand.
#[async_trait]
pub(super) trait OneByOne: Send + Sync {
    async fn publish(&self, id: &str, payload: String) -> Result<()>;
}

/// `None`: this sink has no other side that could be asked.
pub(super) fn open(options: &SinkOptions, stream: &str, topic: &str) -> Result<Option<Arc<dyn Broker>>> {
    let kind = driver::sink(&options.url).map(|driver| driver.about.kind);
    let open = BROKERS.iter().find(|(of, _)| Some(*of) == kind);
    open.map(|(_, open)| open(options, stream, topic)).transpose()
}
