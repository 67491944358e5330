//! Targets of events, and the contract between a sink and the engine.

pub mod audit;
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
pub mod stdout;
pub mod webhook;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Serialize;

pub use self::{
    audit::Audit,
    error::{SinkError, SinkErrorKind},
};
use pillarbox::Event;

use crate::{envelope::Envelope, event::StoredEvent};

/// An event that is being published, with what its route says.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub event: Arc<StoredEvent>,
    /// The stream that must store it: the event's own, or its route's.
    pub stream: Option<Arc<str>>,
    /// Its format at the receiver.
    pub envelope: Envelope,
    /// The producer's own `traceparent`, if `event` has that of the relay's span instead. For formats that also say
    /// where a trace began.
    pub first_traceparent: Option<Arc<str>>,
}

impl Outgoing {
    /// To any stream, as it is.
    pub fn new(event: Arc<StoredEvent>) -> Self {
        Self {
            event,
            stream: None,
            envelope: Envelope::default(),
            first_traceparent: None,
        }
    }
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

/// The result of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The other side has stored it durably; accepting it for sending is not enough. Or it was there before, and the
    /// copy was dropped.
    Delivered,
    /// It failed. [`crate::verdict`] decides what that means. The error says whether the event may have arrived all the
    /// same.
    Failed(SinkError),
    /// The sink did not try the event, because an earlier event of its key in the same batch was not delivered. Or the
    /// sink took it back: the broker refused another event, and this one was dropped together with it. It says nothing
    /// about this event.
    NotTried,
}

/// What a sink can do beyond the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// One batch may contain several events of a key. If one is lost, the events after it are not delivered; they are
    /// [`Outcome::NotTried`]. Without this, the engine has at most one event of a key in flight.
    pub ordered: bool,
    /// It drops an event whose id it has seen recently.
    pub deduplicates: bool,
    /// The largest payload that it accepts, in bytes, if it knows.
    pub payload_bytes_max: Option<usize>,
    /// At most this many events in one batch. The outcomes of a batch are known when its slowest event is answered.
    pub batch_events_max: Option<usize>,
    /// Its events are delivered by the event log: the engine has every one of them appended, whatever its route says.
    pub delivers_to_event_log: bool,
}

/// A broker, or anything else that accepts events.
///
/// **Publishing** returns one outcome for each event of the batch, in the order of the batch. It always returns within
/// the sink's own timeout, whatever the network does. Events of one key arrive in the order of the batch. `Delivered`
/// means that the other side has stored the event durably. If the answer was lost, the outcome is `Failed` and the
/// error is marked `in_doubt`. The payload arrives byte for byte. Id, types, aggregate, version and headers arrive with
/// it.
///
/// A sink does not send an event twice in one call and does not log payloads. It may wait for a lock within its
/// timeout. If a `publish` call is dropped, any part of the batch may be delivered.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    fn capabilities(&self) -> Capabilities;

    /// Whether the sink can be reached. The engine asks at the start, and while it considers the sink down. A missing
    /// stream or topic is no error here, because the other destinations of the sink must continue.
    async fn check(&self) -> Result<(), SinkError>;

    /// Where the event goes. The engine keeps the health of each destination separately. A sink that can only fail as a
    /// whole has one destination, without a name.
    fn destination<'a>(&self, _event: &'a Event, _stream: Option<&'a str>) -> DestinationName<'a> {
        DestinationName::default()
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome>;

    /// `None`: what it has delivered can't be looked up.
    fn audit(&self) -> Option<&dyn Audit> {
        None
    }
}

/// A stream that must exist at a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamSpec {
    pub name: String,
    pub subjects: Vec<String>,
    pub replicas: usize,
    pub storage: Storage,
    /// How long the stream remembers an event's id to drop a copy.
    pub duplicate_window: Duration,
}

/// A topic that must exist at a sink. The broker chooses what is left out, and it is not compared.
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

/// How an existing stream or topic compares with the configuration.
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
    /// One line for each difference: `replicas: 1 there, 3 configured`.
    Differs {
        differences: Vec<String>,
    },
}

/// A sink whose streams or topics can be compared with the configuration and created.
#[async_trait]
pub trait Streams: Send + Sync + 'static {
    /// Compares; changes nothing.
    async fn check_streams(&self) -> Result<Vec<StreamState>, SinkError>;

    /// Creates the missing ones and changes those that differ. Returns what it found before. If the other side can't
    /// change something (a stream's storage), the error says so.
    async fn apply_streams(&self) -> Result<Vec<StreamState>, SinkError>;
}
