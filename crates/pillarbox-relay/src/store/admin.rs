//! Administration of a store: everything that the engine itself does not need.

use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{Enqueued, Event, Limits};
use serde::Serialize;

use super::{Sample, StoreError};
use crate::{
    catalog::Look,
    event::{Seq, StoredEvent},
    pressure::Standing,
};

/// The state of an outbox. The cost grows with the unsettled events, not with those ever delivered.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StoreStatus {
    /// Committed, and waiting for the first attempt.
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
    /// The classes of topics whose producers may be slowed or refused. Empty if nothing is limited.
    pub pressure: Vec<Standing>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelayStatus {
    pub id: super::RelayId,
    pub name: String,
    pub lanes: u16,
    /// The time since its last heartbeat.
    #[serde(rename = "last_seen_seconds", serialize_with = "duration_seconds")]
    pub last_seen: Duration,
    /// What keeps it from delivering.
    pub troubles: Vec<super::Trouble>,
}

/// [`Admin::recent`] is for people: it does not read larger payloads.
pub const RECENT_PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// A committed event and its current status.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    pub event: StoredEvent,
    /// `pending`, `published`, `failed`, `held`, `delayed` or `dead`.
    pub status: String,
}

/// Administration of a store. Separate from [`super::Store`] so that the engine's contract stays small.
#[async_trait]
pub trait Admin: Send + Sync + 'static {
    /// The SQL that creates the outbox, for users who run their own migrations.
    fn migration_sql(&self) -> String;

    /// Creates the outbox or updates it. Running it again changes nothing. Returns a line for each thing it did.
    async fn migrate(&self) -> Result<Vec<String>, StoreError>;

    /// What a migration had to skip because its role lacks a right, and which right to ask for: one sentence each.
    /// The relay works without it.
    async fn missing(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn status(&self) -> Result<StoreStatus, StoreError>;

    /// Figures for metrics and health, at a cost that does not grow with the backlog.
    async fn sample(&self) -> Result<Sample, StoreError>;

    /// No event up to this seq is pending. A scan of all pending events can start here.
    async fn low_mark(&self) -> Result<Seq, StoreError>;

    /// The latest committed events, at most `count`, in the order of their seq. Rows that can't be read or whose
    /// payload exceeds [`RECENT_PAYLOAD_BYTES_MAX`] are skipped.
    async fn recent(&self, count: usize) -> Result<Vec<Recent>, StoreError>;

    /// The kinds of events among the latest `last` committed ones, the most frequent first, at most
    /// [`KINDS_MAX`](crate::catalog::KINDS_MAX) kinds. Reads only these events, without their payloads.
    async fn kinds(&self, last: usize) -> Result<Look, StoreError>;

    /// Writes events in a transaction of its own. For the command line and the HTTP API.
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
