//! What became of events: what the engine asks a store to write down.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    dead::fingerprint,
    event::{Lane, Seq},
    route::AfterDeath,
};

/// One batch of results. The store writes it whole or not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settlement {
    /// Delivered, straight from discovery: the path of almost every event.
    pub published: Vec<Seq>,
    /// Delivered, and leaving the side table.
    pub published_parked: Vec<Parked>,
    /// Tried and failed: waits in the side table, its key with it.
    pub failed: Vec<Failed>,
    /// Not tried, because an earlier event of its key waits: joins the side table behind it.
    pub held: Vec<Parked>,
    /// Not due yet: waits in the side table until its time, without holding its key.
    pub delayed: Vec<Delayed>,
    /// Will never be delivered.
    pub dead: Vec<Dead>,
}

/// An event in, or on its way into or out of, the side table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub seq: Seq,
    pub lane: Lane,
    pub key: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    pub parked: Parked,
    /// With the one just counted.
    pub attempts: u32,
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
    /// The key, if it can have events in the side table.
    pub key: Option<String>,
    pub after: AfterDeath,
    pub attempts: u32,
    pub reason: DeadReason,
    pub failure: FailedTry,
    /// Whether the event was sent. False if a check refused it before.
    pub tried: bool,
}

/// What people read of a failure later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTry {
    pub error: String,
    /// Where the event was to go; `None` when it never came so far.
    pub sink: Option<Arc<str>>,
    /// The relay's name.
    pub relay: Arc<str>,
}

/// Why an event is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    MaxRetriesExceeded,
    PoisonMessage,
    SchemaValidationFailed,
    ProcessingTimeout,
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

    /// As stored; what is unknown was permanent at any rate.
    pub fn from_stored(text: &str) -> Self {
        let known = Self::ALL.into_iter().find(|reason| reason.as_str() == text);
        known.unwrap_or(Self::PermanentFailure)
    }

    /// As stored and shown.
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
    /// Whether its key waits in the side table from now on, if only for a moment.
    pub fn holds_its_key(&self) -> bool {
        self.after != AfterDeath::Skip
    }

    /// The same for the same failure of other events.
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

    /// Whether it is only deliveries straight from discovery: one statement, one HOT update per event.
    pub fn is_plain(&self) -> bool {
        self.len() == self.published.len()
    }
}
