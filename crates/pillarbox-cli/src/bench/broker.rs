//! The other side of a measurement, by its bare client and without anything of ours: a place of its own for each
//! yardstick, and what arrived there.

#[cfg(feature = "kafka")]
mod kafka;
mod nats;

use std::time::SystemTime;

use anyhow::Result;
use pillarbox_relay::{connect::SinkOptions, driver, sink::Outgoing};

use super::events::Mark;

/// A broker with a client of its own.
#[derive(Clone)]
pub(super) enum Broker {
    Nats(nats::Nats),
    #[cfg(feature = "kafka")]
    Kafka(kafka::Kafka),
}

/// Something that arrived, and when.
pub(super) struct Arrival {
    pub(super) mark: Mark,
    pub(super) at: SystemTime,
}

/// Publishes one event after the other and waits for each, as one does by hand.
pub(super) enum OneByOne {
    Nats(Box<nats::OneByOne>),
    #[cfg(feature = "kafka")]
    Kafka(kafka::OneByOne),
}

impl Broker {
    /// `None`: this sink has no other side that could be asked. `stream` and `topic` are the measurement's own.
    pub(super) fn of(options: &SinkOptions, stream: &str, topic: &str) -> Result<Option<Self>> {
        Ok(match driver::sink(&options.url).map(|driver| driver.about.kind) {
            Some("nats") => Some(Self::Nats(nats::Nats::new(&options.url, stream))),
            #[cfg(feature = "kafka")]
            Some("kafka") => Some(Self::Kafka(kafka::Kafka::new(options, topic)?)),
            _ => {
                let _ = topic;
                None
            }
        })
    }

    /// Looking costs the other side something, and Kafka seven requests.
    pub(super) fn look_every_ms(&self) -> u64 {
        match self {
            Self::Nats(_) => 20,
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => 50,
        }
    }

    /// How many events have arrived so far.
    pub(super) async fn arrived(&self) -> Result<u64> {
        match self {
            Self::Nats(nats) => nats.arrived().await,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.arrived().await,
        }
    }

    /// Everything that arrived, of each key in its order.
    pub(super) async fn read_back(&self, each: impl FnMut(Arrival) + Send) -> Result<()> {
        match self {
            Self::Nats(nats) => nats.read_back(each).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.read_back(each).await,
        }
    }

    /// Publishes events from memory, with as many unacknowledged at once; the seconds until all were there.
    pub(super) async fn pure(&self, events: Vec<Outgoing>, in_flight_max: usize) -> Result<f64> {
        match self {
            Self::Nats(nats) => nats.pure(events, in_flight_max).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.pure(events, in_flight_max).await,
        }
    }

    pub(super) async fn one_by_one(&self) -> Result<OneByOne> {
        Ok(match self {
            Self::Nats(nats) => OneByOne::Nats(Box::new(nats.one_by_one().await?)),
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => OneByOne::Kafka(kafka.one_by_one().await?),
        })
    }

    /// Drops what was made.
    pub(super) async fn clear(&self) -> Result<()> {
        match self {
            Self::Nats(nats) => nats.clear().await,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.clear().await,
        }
    }
}

impl OneByOne {
    pub(super) async fn publish(&self, id: &str, payload: String) -> Result<()> {
        match self {
            Self::Nats(nats) => nats.publish(id, payload).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.publish(id, payload).await,
        }
    }
}
