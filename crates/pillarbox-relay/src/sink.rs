//! Where events go, and what a broker owes the engine.

pub mod error;
pub mod file;
#[cfg(feature = "http-stream")]
pub mod http_stream;
mod in_order;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
pub mod null;
#[cfg(any(feature = "nats", feature = "kafka"))]
mod pem;
pub mod stdout;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Serialize;

pub use self::error::{SinkError, SinkErrorKind};
use pillarbox::Event;

use crate::{envelope::Envelope, event::StoredEvent};

/// An event on its way, with what its route says.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub event: Arc<StoredEvent>,
    /// The stream that is to take it: the event's own, or its route's.
    pub stream: Option<Arc<str>>,
    /// What it is to look like there.
    pub envelope: Envelope,
}

/// Where in a sink an event goes: the smallest part that can be away while the rest of the sink works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DestinationName<'a> {
    pub stream: Option<&'a str>,
    pub topic: Option<&'a str>,
    pub partition: Option<u32>,
}

impl std::fmt::Display for DestinationName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [self.stream, self.topic].into_iter().flatten();
        f.write_str(&names.collect::<Vec<_>>().join(" "))?;
        match self.partition {
            Some(partition) => write!(f, "[{partition}]"),
            None => Ok(()),
        }
    }
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is there and durable there, not merely accepted for sending; or it was there before (a copy was dropped).
    Delivered,
    /// It failed; [`crate::verdict`] decides what that means. The error says whether it may have arrived all the same.
    Failed(SinkError),
    /// Not tried, because an earlier event of its key in the same batch failed; or given back, because the other side refused
    /// another event and this one went with it. Nothing is known against it.
    Held,
}

/// What a sink can do beyond the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Several events of one key may be in one batch: when one is lost, those after it are not delivered (they are
    /// held). Without it the engine puts at most one event of a key in flight.
    pub ordered: bool,
    /// It drops an event whose id it has seen lately.
    pub deduplicates: bool,
    /// The largest payload it takes, in bytes, when it knows.
    pub payload_bytes_max: Option<usize>,
}

/// A broker, or anything else that takes events.
///
/// **Publishing** returns one outcome for each event of the batch, in its order, and it returns: whatever the network
/// does, within the sink's own timeout. Events of one key arrive in the order of the batch. `Delivered` is said only of
/// what the other side has durably; when the answer was lost, the outcome is `Failed` and the error is marked `in_doubt`. The
/// payload arrives byte for byte; id, types, aggregate, version and headers arrive with it.
///
/// A sink does not send an event twice in one call and does not log payloads. It may wait for a lock within its timeout. Dropping a `publish` call may deliver any part of it.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    fn capabilities(&self) -> Capabilities;

    /// Whether it can be reached. Asked at the start, and while the sink is thought to be down. A stream or topic that is
    /// missing is no error here: the other destinations of the sink must go on.
    async fn check(&self) -> Result<(), SinkError>;

    /// Where the event goes. The health of each destination is kept apart. A sink that is one whole has one, without a name.
    fn destination<'a>(&self, _event: &'a Event, _stream: Option<&'a str>) -> DestinationName<'a> {
        DestinationName::default()
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome>;
}

/// A stream that is to exist at a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamSpec {
    pub name: String,
    pub subjects: Vec<String>,
    pub replicas: usize,
    pub storage: Storage,
    /// How long the stream remembers an event's id to drop its copy.
    pub duplicate_window: Duration,
}

/// A topic that is to exist at a sink. What is left out is the broker's to choose, and not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: Option<u32>,
    pub replication: Option<u32>,
    /// `retention.ms`, `cleanup.policy` and the like.
    pub settings: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    File,
    Memory,
}

/// How a stream or topic there compares with what the configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamState {
    pub name: String,
    #[serde(flatten)]
    pub state: Comparison,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Comparison {
    Same,
    Missing,
    /// What differs, a line each: `replicas: 1 there, 3 configured`.
    Differs {
        differences: Vec<String>,
    },
}

/// Streams or topics one can compare with the configuration and make.
#[async_trait]
pub trait Streams: Send + Sync + 'static {
    /// Compares; changes nothing.
    async fn check_streams(&self) -> Result<Vec<StreamState>, SinkError>;

    /// Makes the missing ones and changes those that differ; tells what it found before. What the other side can't change (a
    /// stream's storage) is an error that says so.
    async fn apply_streams(&self) -> Result<Vec<StreamState>, SinkError>;
}
