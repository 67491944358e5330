//! Dead letters: events that will not be delivered as they are, the reasons, and what people did about them.

mod bulk;
mod fingerprint;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Event, EventId};
use serde::{Deserialize, Serialize};

pub use self::{
    bulk::{BULK_LETTERS_MAX, BulkError, discard_all, replay_all},
    fingerprint::{SUPERSEDED, fingerprint, superseded_fingerprint},
};
use crate::{event::Seq, settlement::DeadReason, store::StoreError};

/// The number of failures that are kept for an event: the latest ones.
pub const FAILURES_MAX: usize = 20;

/// An event that died.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetter {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: EventId,
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub seq: Seq,
    pub topic: String,
    pub key: String,
    pub event_type: String,
    pub reason: DeadReason,
    pub error: String,
    /// Failures counted against it.
    pub attempts: u32,
    /// The sink; `None` if it died before a sink was chosen.
    pub sink: Option<String>,
    /// The name of the relay that gave it up.
    pub relay: String,
    /// Equal for the same failure of other events.
    pub fingerprint: String,
    pub died_at: Timestamp,
    pub state: DeadState,
    /// Later events of its key wait until it is replayed or discarded.
    pub blocks_key: bool,
}

/// The state of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeadState {
    /// It is neither replayed nor discarded, or it died again after a replay.
    Open,
    Replayed,
    Discarded,
}

/// All details of a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadDetails {
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// The latest failed attempts, oldest first; at most [`FAILURES_MAX`].
    pub failures: Vec<Failure>,
    /// What people did about it, oldest first.
    pub recoveries: Vec<Recovery>,
    /// The event; `None` if the row can't be read.
    #[serde(skip)]
    pub event: Option<Event>,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    pub at: Timestamp,
    pub error: String,
    pub sink: Option<String>,
    pub relay: String,
}

/// An action on a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Recovery {
    pub action: RecoveryAction,
    pub at: Timestamp,
    pub by: String,
    pub why: Option<String>,
    /// The id of the copy, if it was replayed as a new event.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub new_id: Option<EventId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecoveryAction {
    Replayed,
    Discarded,
}

/// Selects dead letters. Fields that are not set do not restrict the selection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeadFilter {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub ids: Vec<EventId>,
    pub fingerprint: Option<String>,
    /// A topic. With `.>` at its end, all topics below it; `>` alone is every topic.
    pub topic: Option<String>,
    pub event_type: Option<String>,
    pub key: Option<String>,
    pub reason: Option<DeadReason>,
    /// Died at this time or later.
    pub since: Option<Timestamp>,
}

/// Dead letters of one fingerprint.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadGroup {
    pub fingerprint: String,
    pub reason: DeadReason,
    pub sink: Option<String>,
    /// The error of the latest letter.
    pub error: String,
    pub count: u64,
    pub keys: u64,
    pub topics: u64,
    pub first_died_at: Timestamp,
    pub last_died_at: Timestamp,
    /// When the last notice about this cause was sent. [`DeadLetters::groups`] leaves it empty;
    /// [`Notices::add_told`](crate::notice::Notices::add_told) fills it in.
    pub told_at: Option<Timestamp>,
}

/// The letters that a bulk action would affect.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Touched {
    pub count: u64,
    pub keys: u64,
    /// Each topic with its number of letters; the most numerous first, at most 100.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Vec<serde_json::Value>>))]
    pub topics: Vec<(String, u64)>,
}

/// A cause of open dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCause {
    pub fingerprint: String,
    /// Open letters.
    pub count: u64,
    pub last_died_at: Timestamp,
}

/// The most causes that [`DeadLetters::causes`] returns.
pub const CAUSES_MAX: usize = 10_000;

/// The results of the letters of a fingerprint that has no open ones left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CauseResult {
    pub replayed: u64,
    pub discarded: u64,
    /// Replayed letters whose events are neither delivered nor dead again.
    pub waiting: u64,
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
    /// The same event with the same id: consumers that have processed it drop it.
    Same,
    /// A copy with a new id, after all other events of its key, with the old id in its header `replay-of`.
    New,
}

/// The dead letters of a store.
///
/// Actions affect open letters, oldest first, at most `limit` in one call. Each call is applied completely or not
/// at all, and is recorded with its actor and reason. It returns the number of letters; 0 when none is left. To act
/// on all that match, see [`replay_all`] and [`discard_all`].
///
/// A replayed event is tried at once with no attempts counted, in the order of seq within its key. Events of its
/// key in the side table wait behind it. If it dies again, its letter is open again and keeps its recoveries. A
/// discarded event stays dead. If a letter blocks its key, the key continues when the letter is replayed (its event
/// goes first), discarded, or sent as a new event. Such a letter does not expire.
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Open letters by fingerprint, the most numerous first, at most 1,000 groups.
    async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError>;

    /// The latest first, starting below `before`. Letters of every state unless one is given.
    async fn list(
        &self,
        filter: &DeadFilter,
        state: Option<DeadState>,
        before: Option<Seq>,
        count: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;

    async fn show(&self, id: &EventId) -> Result<Option<DeadDetails>, StoreError>;

    /// The letters that an action with this filter would affect.
    async fn touched(&self, filter: &DeadFilter) -> Result<Touched, StoreError>;

    /// The causes of the open letters, the most numerous first: at most [`CAUSES_MAX`]. This is called all the
    /// time, so it is cheaper than `groups`.
    async fn causes(&self) -> Result<Vec<OpenCause>, StoreError>;

    /// The results of the letters of this fingerprint that died at this time or later and are not open.
    async fn outcome(&self, fingerprint: &str, since: Timestamp) -> Result<CauseResult, StoreError>;

    /// Open letters that match, died at least `min_age` ago, were replayed fewer than `times_max` times and still
    /// have their event. Oldest first.
    async fn replayable(
        &self,
        filter: &DeadFilter,
        min_age: Duration,
        times_max: u32,
        limit: usize,
    ) -> Result<Vec<EventId>, StoreError>;

    async fn replay(
        &self,
        filter: &DeadFilter,
        limit: usize,
        send: ReplayAs,
        actor: &Actor,
    ) -> Result<usize, StoreError>;

    async fn discard(&self, filter: &DeadFilter, limit: usize, actor: &Actor) -> Result<usize, StoreError>;

    /// Deletes letters (of any state) that died longer ago than this; the events stay dead. At most `limit` in one
    /// call.
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

    /// From the stored text. An unknown state counts as open.
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
    pub fn one(id: EventId) -> Self {
        Self {
            ids: vec![id],
            ..Self::default()
        }
    }

    /// Whether it excludes any letter.
    pub fn restricts(&self) -> bool {
        !self.ids.is_empty()
            || self.topic_and_prefix() != (None, None)
            || self.fingerprint.is_some()
            || self.event_type.is_some()
            || self.key.is_some()
            || self.reason.is_some()
            || self.since.is_some()
    }

    /// An exact topic, or a prefix of topics: at most one of the two.
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
        assert!(DeadFilter::one("x".into()).restricts());
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
