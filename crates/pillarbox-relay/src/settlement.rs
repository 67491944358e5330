//! The results of events, for the store to write.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use pillarbox::{Event, EventId};
use serde::{Deserialize, Serialize};

use crate::{
    dead::fingerprint,
    event::{Lane, Seq},
    route::AfterDeath,
};

/// One batch of results. The store writes it completely or not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settlement {
    /// Delivered, directly from discovery: the path of almost every event.
    pub published: Vec<Seq>,
    /// Delivered from the side table, which they leave.
    pub published_parked: Vec<Parked>,
    /// Tried and failed, or not to be tried now. They wait in the side table, and their keys wait with them.
    pub failed: Vec<Failed>,
    /// Not tried, because an earlier event of the key waits in the side table. They wait there behind it.
    pub held: Vec<Parked>,
    /// Not due yet. They wait in the side table until their time and do not hold their keys.
    pub delayed: Vec<Delayed>,
    /// Will never be delivered.
    pub dead: Vec<Dead>,
    /// The delivered events that the event log records. (A dead one says so itself.)
    pub logged: Vec<Seq>,
    pub logged_by: LoggedBy,
}

/// Who delivered the events that the event log records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedBy {
    /// The relay's name.
    pub relay: Arc<str>,
    /// The sink of each event of [`Settlement::logged`], in that order. Empty: unknown.
    pub sinks: Vec<Arc<str>>,
}

impl LoggedBy {
    /// The relay, if it is known.
    pub fn relay(&self) -> Option<&str> {
        (!self.relay.is_empty()).then_some(&*self.relay)
    }

    /// The one sink of all events. `None`: they have several.
    pub fn only_sink(&self) -> Option<Option<&str>> {
        let first = self.sinks.first();
        let same = self.sinks.iter().all(|sink| Some(sink) == first);
        same.then_some(first.map(|sink| &**sink))
    }
}

/// An event that is in the side table, or enters or leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub seq: Seq,
    pub lane: Lane,
    pub key: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    pub parked: Parked,
    /// Including this one.
    pub attempts: u32,
    /// Whether this attempt was counted. Not if the event only waits: for its destination, or for its schema.
    pub charged: bool,
    pub failure: FailedTry,
    pub retry_in: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Delayed {
    pub parked: Parked,
    pub available_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Dead {
    pub seq: Seq,
    pub lane: Lane,
    /// For the log. `None` if the event can't be read.
    pub subject: Option<Subject>,
    /// The key. `None` if the event is not in the side table and its route skips dead events, or if the key can't be
    /// read.
    pub key: Option<String>,
    pub after: AfterDeath,
    pub attempts: u32,
    pub reason: DeadReason,
    pub failure: FailedTry,
    /// Whether the event was sent. False if a check rejected it before.
    pub tried: bool,
    /// Whether the event log records it.
    pub logged: bool,
}

/// Which event it is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub id: EventId,
    pub event_type: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
}

impl From<&Event> for Subject {
    fn from(event: &Event) -> Self {
        Self {
            id: event.id.clone(),
            event_type: event.event_type.clone(),
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone(),
        }
    }
}

/// The description of a failure, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTry {
    pub error: String,
    /// The sink of the event. `None` if the event was not sent to one.
    pub sink: Option<Arc<str>>,
    /// The relay's name.
    pub relay: Arc<str>,
}

/// Why an event is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The event failed as often as it may be tried. Also: its destination was paused for longer than
    /// `destination_outage_max_seconds`; then the error text names that setting.
    MaxRetriesExceeded,
    /// The event can't be read, or the sink says that it is invalid.
    PoisonMessage,
    /// A schema, a rule or a version check refused it.
    SchemaValidationFailed,
    /// The sink did not answer in time, as often as the event may be tried.
    ProcessingTimeout,
    /// It can never be delivered: it is too large, the sink refuses it, or no route matches its topic.
    PermanentFailure,
}

impl DeadReason {
    pub const ALL: [Self; 5] = [
        Self::MaxRetriesExceeded,
        Self::PoisonMessage,
        Self::SchemaValidationFailed,
        Self::ProcessingTimeout,
        Self::PermanentFailure,
    ];

    /// Parses the stored text. An unknown text counts as permanent.
    pub fn from_stored(text: &str) -> Self {
        let known = Self::ALL.into_iter().find(|reason| reason.as_str() == text);
        known.unwrap_or(Self::PermanentFailure)
    }

    /// The text that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxRetriesExceeded => "max_retries_exceeded",
            Self::PoisonMessage => "poison_message",
            Self::SchemaValidationFailed => "schema_validation_failed",
            Self::ProcessingTimeout => "processing_timeout",
            Self::PermanentFailure => "permanent_failure",
        }
    }
}

impl Dead {
    /// Whether later events of its key are held from now on. With `latest`, only until the settlement is written.
    pub fn holds_its_key(&self) -> bool {
        self.after != AfterDeath::Skip
    }

    /// The same value for the same failure of other events.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.reason, self.failure.sink.as_deref(), &self.failure.error)
    }
}

impl Settlement {
    pub fn len(&self) -> usize {
        self.published.len()
            + self.published_parked.len()
            + self.failed.len()
            + self.held.len()
            + self.delayed.len()
            + self.dead.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The delivered events that the event log records, each with its sink.
    pub fn logged_with_sinks(&self) -> impl Iterator<Item = (Seq, Option<&str>)> {
        let sinks = self.logged_by.sinks.iter().map(|sink| Some(&**sink));
        self.logged
            .iter()
            .copied()
            .zip(sinks.chain(std::iter::repeat(None)))
    }

    /// The seqs of the dead events that the event log records.
    pub fn logged_dead(&self) -> impl Iterator<Item = Seq> {
        self.dead.iter().filter(|dead| dead.logged).map(|dead| dead.seq)
    }

    /// Whether it contains only deliveries directly from discovery: one statement, one HOT update for each event.
    pub fn is_plain(&self) -> bool {
        self.len() == self.published.len()
    }
}
