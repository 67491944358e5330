//! Dead letters: events that will not be delivered as they are, why, and what people do about them.

mod bulk;
mod fingerprint;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::Event;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::{
    bulk::{BULK_LETTERS_MAX, BulkError, discard_all, replay_all},
    fingerprint::{SUPERSEDED, fingerprint, superseded_fingerprint},
};
use crate::{event::Seq, settlement::DeadReason, store::StoreError};

/// The failures of an event that are remembered: the latest.
pub const FAILURES_MAX: usize = 20;

/// An event that died.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadLetter {
    pub id: Uuid,
    pub seq: Seq,
    pub topic: String,
    pub key: String,
    pub event_type: String,
    pub reason: DeadReason,
    pub error: String,
    /// Failures counted against it.
    pub attempts: u32,
    /// Where it was to go; `None` when it never came so far.
    pub sink: Option<String>,
    /// The relay that gave it up, by name.
    pub relay: String,
    /// The same for the same failure of other events.
    pub fingerprint: String,
    pub died_at: Timestamp,
    pub state: DeadState,
    /// Later events of its key wait until it is replayed or discarded.
    pub blocks_key: bool,
}

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadState {
    /// Somebody has to look at it.
    Open,
    Replayed,
    Discarded,
}

/// Everything known about one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadDetails {
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// The latest tries that failed, oldest first; at most [`FAILURES_MAX`].
    pub failures: Vec<Failure>,
    /// What people did about it, oldest first.
    pub recoveries: Vec<Recovery>,
    /// What was to be delivered; `None` when the row can't be read.
    #[serde(skip)]
    pub event: Option<Event>,
}

/// A try that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub at: Timestamp,
    pub error: String,
    pub sink: Option<String>,
    pub relay: String,
}

/// Something a person did about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovery {
    pub action: RecoveryAction,
    pub at: Timestamp,
    pub by: String,
    pub why: Option<String>,
    /// The event made in its place, when it was replayed as a new one.
    pub new_id: Option<Uuid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryAction {
    Replayed,
    Discarded,
}

/// Which dead letters. What is not given does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadFilter {
    pub ids: Vec<Uuid>,
    pub fingerprint: Option<String>,
    /// A topic, or with `.>` at its end all below it; `>` alone is every topic.
    pub topic: Option<String>,
    pub event_type: Option<String>,
    pub key: Option<String>,
    pub reason: Option<DeadReason>,
    /// Died at this time or later.
    pub since: Option<Timestamp>,
}

/// Dead letters of one fingerprint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadGroup {
    pub fingerprint: String,
    pub reason: DeadReason,
    pub sink: Option<String>,
    /// The latest one's.
    pub error: String,
    pub count: u64,
    pub keys: u64,
    pub topics: u64,
    pub first_died_at: Timestamp,
    pub last_died_at: Timestamp,
    /// When people were told last that events die of this.
    pub told_at: Option<Timestamp>,
}

/// What a bulk action would touch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Touched {
    pub count: u64,
    pub keys: u64,
    /// With how many of each; the most numerous first, at most 100.
    pub topics: Vec<(String, u64)>,
}

/// Who acts, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub by: String,
    pub why: Option<String>,
}

/// What a replay sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayAs {
    /// The same event with its id: consumers that have seen it drop it.
    Same,
    /// A copy with an id of its own, behind everything of its key, with the old id in its header `replay-of`.
    New,
}

/// The dead letters of a store.
///
/// Actions touch letters that are open, oldest first, at most `limit` at once, each call whole or not at all, and are
/// written down with who and why. They return how many; 0 when none is left. For all that match see [`replay_all`] and
/// [`discard_all`].
///
/// A replayed event is tried at once with no attempts counted, in the order of seq within its key; events of its key
/// that wait in the side table wait behind it. When it dies again its letter is open again and keeps its recoveries.
/// A discarded one stays dead. A key that waits for a letter goes on when it is replayed (with it first) or discarded, or
/// sent as a new event, and such a letter does not expire.
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// By fingerprint, the most numerous first, at most 1,000. Only open ones.
    async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError>;

    /// The latest first, from below `before` on; of every state unless one is given.
    async fn list(
        &self,
        filter: &DeadFilter,
        state: Option<DeadState>,
        before: Option<Seq>,
        count: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;

    async fn show(&self, id: Uuid) -> Result<Option<DeadDetails>, StoreError>;

    /// What an action with this filter would touch.
    async fn touched(&self, filter: &DeadFilter) -> Result<Touched, StoreError>;

    async fn replay(
        &self,
        filter: &DeadFilter,
        limit: usize,
        send: ReplayAs,
        actor: &Actor,
    ) -> Result<usize, StoreError>;

    async fn discard(&self, filter: &DeadFilter, limit: usize, actor: &Actor) -> Result<usize, StoreError>;

    /// Drops letters (of any state) that died longer ago than this; the events stay dead. At most `limit` at once.
    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError>;
}

impl DeadState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
        }
    }

    /// As stored; what is unknown has to be looked at.
    pub fn from_stored(text: &str) -> Self {
        match text {
            "replayed" => Self::Replayed,
            "discarded" => Self::Discarded,
            _ => Self::Open,
        }
    }
}

impl RecoveryAction {
    pub fn from_stored(text: &str) -> Self {
        match text {
            "discarded" => Self::Discarded,
            _ => Self::Replayed,
        }
    }
}

impl DeadFilter {
    pub fn one(id: Uuid) -> Self {
        Self {
            ids: vec![id],
            ..Self::default()
        }
    }

    /// Whether it leaves any letter out.
    pub fn restricts(&self) -> bool {
        !self.ids.is_empty()
            || self.topic_and_prefix() != (None, None)
            || self.fingerprint.is_some()
            || self.event_type.is_some()
            || self.key.is_some()
            || self.reason.is_some()
            || self.since.is_some()
    }

    /// The topic to be equal to, and the beginning to be below of: at most one of them.
    pub fn topic_and_prefix(&self) -> (Option<&str>, Option<&str>) {
        match self.topic.as_deref() {
            None | Some(">") => (None, None),
            Some(topic) => match topic.strip_suffix('>').filter(|start| start.ends_with('.')) {
                Some(prefix) => (None, Some(prefix)),
                None => (Some(topic), None),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_is_no_restriction() {
        let filter = |topic: Option<&str>, key: Option<&str>| DeadFilter {
            topic: topic.map(str::to_owned),
            key: key.map(str::to_owned),
            ..DeadFilter::default()
        };
        assert!(!filter(None, None).restricts());
        assert!(!filter(Some(">"), None).restricts());
        assert!(filter(Some("a.>"), None).restricts());
        assert!(filter(Some(">"), Some("k")).restricts());
        assert!(DeadFilter::one(Uuid::nil()).restricts());
    }

    #[test]
    fn a_topic_is_one_or_all_below() {
        let parts = |topic: &str| {
            let filter = DeadFilter {
                topic: Some(topic.into()),
                ..DeadFilter::default()
            };
            let (topic, prefix) = filter.topic_and_prefix();
            (topic.map(str::to_owned), prefix.map(str::to_owned))
        };
        assert_eq!(parts("a.b"), (Some("a.b".into()), None));
        assert_eq!(parts("a.>"), (None, Some("a.".into())));
        assert_eq!(parts(">"), (None, None));
        assert_eq!(parts("a>"), (Some("a>".into()), None));
        assert_eq!(DeadFilter::default().topic_and_prefix(), (None, None));
    }
}
