//! What people ask of a store, apart from the engine's work.

use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{Enqueued, Event, Limits};
use serde::Serialize;

use super::{StoreError, StoreErrorKind};
use crate::{
    catalog::Look,
    event::{Seq, StoredEvent},
    pressure::Standing,
};

/// How an outbox stands. Counting costs what is unsettled, not what was ever delivered.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StoreStatus {
    /// Committed and waiting for their first try.
    pub pending: u64,
    /// Waiting for a retry.
    pub failed: u64,
    /// Waiting behind a failing event of their key.
    pub held: u64,
    /// Not due yet.
    pub delayed: u64,
    pub dead: u64,
    /// Age of the oldest event that is pending (not delayed), failed or held.
    #[serde(rename = "oldest_age_seconds", serialize_with = "seconds")]
    pub oldest_age: Option<Duration>,
    pub lanes_held: u16,
    pub relays: Vec<RelayStatus>,
    /// The classes of topics whose producers may be slowed or refused; none where nothing is limited.
    pub pressure: Vec<Standing>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelayStatus {
    pub id: super::RelayId,
    pub name: String,
    pub lanes: u16,
    /// How long since it was last heard.
    #[serde(rename = "last_seen_seconds", serialize_with = "duration_seconds")]
    pub last_seen: Duration,
    /// What keeps it from delivering.
    pub troubles: Vec<super::Trouble>,
}

/// [`Admin::recent`] is for looking at: larger payloads are not read for it.
pub const RECENT_PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// A committed event as it stands, delivered or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    pub event: StoredEvent,
    /// `pending`, `published`, `failed`, `held`, `delayed` or `dead`.
    pub status: String,
}

/// Administration of a store. Apart from [`super::Store`] so that the engine's contract stays small.
#[async_trait]
pub trait Admin: Send + Sync + 'static {
    /// The SQL that makes the outbox, for those who run their migrations themselves.
    fn migration_sql(&self) -> String;

    /// Makes the outbox or brings it up to date; running it again changes nothing. Says what it did, a line each.
    async fn migrate(&self) -> Result<Vec<String>, StoreError>;

    /// What a migration had to leave out because its role lacks a right, and what to ask for: a sentence each. The relay works
    /// without it.
    async fn missing(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn status(&self) -> Result<StoreStatus, StoreError>;

    /// Nothing up to here is pending: where a look at all pending events may begin.
    async fn low_mark(&self) -> Result<Seq, StoreError> {
        Ok(0)
    }

    /// The latest committed events, at most `count`, in the order of their seq. A row that can't be
    /// read, or has a payload over [`RECENT_PAYLOAD_BYTES_MAX`], is left out.
    async fn recent(&self, _count: usize) -> Result<Vec<Recent>, StoreError> {
        Err(StoreError::new(
            StoreErrorKind::Refused,
            "this database can't list its latest events",
        ))
    }

    /// The kinds of events among the latest `last` that were committed, the most frequent first, at most
    /// [`KINDS_MAX`](crate::catalog::KINDS_MAX) of them. Reads no more than these events, without their payloads.
    async fn kinds(&self, last: usize) -> Result<Look, StoreError>;

    /// Writes events in one transaction of its own: for the command line and the HTTP API.
    async fn enqueue(&self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError>;
}

/// Why [`Admin::enqueue`] wrote nothing.
#[derive(Debug, thiserror::Error)]
pub enum AdminEnqueueError {
    #[error(transparent)]
    Refused(#[from] pillarbox::EnqueueError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) fn seconds<S: serde::Serializer>(
    age: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    age.map(|age| age.as_secs_f64()).serialize(serializer)
}

fn duration_seconds<S: serde::Serializer>(age: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(age.as_secs_f64())
}
