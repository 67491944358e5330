//! The event log: what became of events, in an order that readers can follow.
//!
//! A settlement appends an entry for each event that was delivered or died, if the event's route has an event log. The
//! entry has a copy of the event, so it stays readable when the outbox's own row is gone. [`follow`] reads the log from a
//! position and continues as it grows; [`hub`] shares one reader among many clients.

pub mod filter;
pub mod follow;
pub mod hub;
pub mod life;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Event, EventId};
use serde::{Serialize, Serializer};

pub use self::{
    filter::LogFilter,
    follow::{FollowError, Follower, Start},
    hub::Hub,
};
use crate::{
    dead::Failure,
    event::Seq,
    settlement::DeadReason,
    store::{PageLimit, StoreError},
};

/// The place of an entry in the log, from 1. Positions have no gaps: see [`EventLog`].
pub type Position = i64;

/// What became of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    pub position: Position,
    pub at: Timestamp,
    pub outcome: LogOutcome,
    pub seq: Seq,
    /// When the event was written to the outbox.
    pub created_at: Timestamp,
    /// Failed attempts that were counted.
    pub attempts: u32,
    /// The failed attempts before this outcome, and for a dead event the last one too; at most
    /// [`FAILURES_MAX`](crate::dead::FAILURES_MAX), the latest.
    pub failures: Vec<Failure>,
    /// The sink that stored or refused it. `None`: no sink did, or the entry is older than this field.
    pub sink: Option<String>,
    /// The name of the relay that wrote the entry.
    pub relay: Option<String>,
    /// A dead event has neither its payload (it is `null`) nor its headers here: they may be unreadable or too large.
    pub event: Event,
}

#[derive(Debug, Clone, PartialEq)]
pub enum LogOutcome {
    Published,
    Dead { reason: DeadReason, error: String },
}

/// As JSON: the members of the event beside those of the entry.
impl Serialize for LogEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            position: Position,
            status: &'static str,
            at: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<DeadReason>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a str>,
            seq: Seq,
            created_at: Timestamp,
            attempts: u32,
            #[serde(skip_serializing_if = "<[Failure]>::is_empty")]
            failures: &'a [Failure],
            #[serde(skip_serializing_if = "Option::is_none")]
            sink: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            relay: Option<&'a str>,
            #[serde(flatten)]
            event: &'a Event,
        }
        let (reason, error) = match &self.outcome {
            LogOutcome::Published => (None, None),
            LogOutcome::Dead { reason, error } => (Some(*reason), Some(error.as_str())),
        };
        let shown = Shown {
            position: self.position,
            status: self.outcome.status(),
            at: self.at,
            reason,
            error,
            seq: self.seq,
            created_at: self.created_at,
            attempts: self.attempts,
            failures: &self.failures,
            sink: self.sink.as_deref(),
            relay: self.relay.as_deref(),
            event: &self.event,
        };
        shown.serialize(serializer)
    }
}

impl LogOutcome {
    /// The word for it: `published` or `dead`.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Dead { .. } => "dead",
        }
    }
}

/// One row of the log.
#[derive(Debug, Clone, PartialEq)]
pub enum LogRow {
    Entry(Box<LogEntry>),
    /// Positions that have no entry and never will: usually one, but many where the log was emptied or restored.
    Void(Stretch),
}

impl LogRow {
    /// The position of the row itself: the last one that it stands for.
    pub fn position(&self) -> Position {
        match self {
            Self::Entry(entry) => entry.position,
            Self::Void(positions) => positions.last,
        }
    }

    /// The first position that the row stands for.
    pub fn first(&self) -> Position {
        match self {
            Self::Entry(entry) => entry.position,
            Self::Void(positions) => positions.first,
        }
    }
}

/// The positions from `first` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub first: Position,
    pub last: Position,
}

/// The positions that one row stands for, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub positions: Stretch,
    pub at: Timestamp,
}

/// The part of the log that exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LogBounds {
    /// Entries up to this position were deleted because of their age. 0: none was.
    pub expired: Position,
    /// The latest position. Entries before it may still be uncommitted.
    pub last: Position,
}

/// Some entries of the log, the latest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogList {
    pub entries: Vec<LogEntry>,
    /// Continue before this position. `None`: these were the last. A list may have fewer entries than asked for, even
    /// none, and still continue: one call searches a bounded part of the log.
    pub next: Option<Position>,
}

/// How many events of one type had one outcome within one hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HourCount {
    /// The beginning of the hour.
    pub hour: Timestamp,
    pub event_type: String,
    pub status: String,
    pub count: u64,
}

/// The answer of [`EventLog::counts`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// In the order of the hours.
    pub counts: Vec<HourCount>,
    /// The entries from this time on are all counted; earlier ones only in part or not at all. `None`: all are counted.
    pub complete_since: Option<Timestamp>,
}

/// Everything that is known about one event, besides its dead letter.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// `None`: the row was archived or deleted. The log may still have the event.
    pub row: Option<LifeRow>,
    /// Its entries in the log, oldest first.
    pub entries: Vec<LogEntry>,
}

/// The event's row in the outbox.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LifeRow {
    pub seq: Seq,
    /// `pending`, `published`, `failed`, `held`, `delayed` or `dead`.
    pub status: String,
    pub created_at: Timestamp,
    pub attempts: u32,
    pub first_attempt_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    pub published_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// When it is tried next, if it waits for a time.
    pub due_at: Option<Timestamp>,
    /// The latest failed attempts, if it waits for its retry. A dead letter has its own.
    pub failures: Vec<Failure>,
    /// `None`: it can't be read.
    #[serde(skip)]
    pub event: Option<Event>,
}

/// The event log of a store.
///
/// **Appending** is part of [`Store::settle`](crate::Store::settle): the entry and the event's new status are written
/// together or not at all. An event is appended as published at most once, so an event that is delivered again does not
/// appear again. Events of a key are appended in the order in which they were delivered.
///
/// **Positions** rise by one, and none is used twice. An entry can be committed after one with a higher position, so a reader that finds a
/// position missing waits for it. If it stays missing, because the transaction was rolled back, the reader calls `fill`:
/// afterwards the position has its entry or is void, and stays so. [`Follower`] does all this.
///
/// A store that finds signs that the log lost its latest entries (it was emptied, restored, or is on a standby that was
/// promoted) goes on at a position far above everything that may have been handed out, with one void row for all
/// positions in between. So a reader with a position of the lost part is told, and none takes a new entry for an old one.
///
/// Reading never blocks a relay. Every method may be called again after an error.
#[async_trait]
pub trait EventLog: Send + Sync + 'static {
    /// The rows after this position, in order. Positions may be missing among them.
    async fn read(&self, after: Position, limit: PageLimit) -> Result<Vec<LogRow>, StoreError>;

    /// The same rows without their content, at most `count`.
    async fn places(&self, after: Position, count: usize) -> Result<Vec<Place>, StoreError>;

    /// Appends a void row and returns its position.
    async fn mark(&self) -> Result<Position, StoreError>;

    /// Decides the positions from `first` to `last`: waits for transactions that have taken one of them, and makes those
    /// void that nobody took. It waits for a few seconds at most; then it is an error, and the caller asks again. A void
    /// row has the time of the row behind it.
    async fn fill(&self, first: Position, last: Position) -> Result<(), StoreError>;

    /// Makes the positions from `first` to `last` void with one row, without waiting for transactions: for a stretch that
    /// is much longer than what open transactions can have taken. Does nothing if `last` has a row.
    async fn skip(&self, first: Position, last: Position) -> Result<(), StoreError>;

    async fn bounds(&self) -> Result<LogBounds, StoreError>;

    /// Entries that match, the latest first, below `before`.
    async fn list(
        &self,
        filter: &LogFilter,
        before: Option<Position>,
        count: usize,
    ) -> Result<LogList, StoreError>;

    /// `None`: neither the outbox nor the log has an event with this id.
    async fn life(&self, id: &EventId) -> Result<Option<Life>, StoreError>;

    /// Matching entries by hour, event type and outcome. Reads the latest `entries_max` positions of the filter's time,
    /// in parts, and stops after [`COUNTING_TIME_MAX`]; the answer says if that was not everything.
    async fn counts(&self, filter: &LogFilter, entries_max: Position) -> Result<LogCounts, StoreError>;

    /// Deletes entries that are older than this, oldest first, at most `limit` in one call. Returns their number.
    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError>;
}

/// As many entries as people may have counted at once.
pub const COUNTED_MAX: Position = 5_000_000;
/// [`EventLog::counts`] stops after this time.
pub const COUNTING_TIME_MAX: Duration = Duration::from_secs(15);
