//! Attempts that have begun and not ended, kept across the deaths of processes. [`consume`](crate::consume)
//! uses them.
//!
//! They are in a small table next to the inbox, `<inbox>_attempts`. A row is an event that a handler has
//! begun and not ended, with the number of times. A row with the number 0 is a consumer that is running and
//! has not deregistered.

use std::time::Duration;

use super::{Inbox, InboxError};
use crate::event::EventId;

/// The maximum number of rows to read. No crash leaves more behind.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(super) const ROWS_MAX: i64 = 10_000;
/// A consumer regularly records that it is alive. One that has not done so for this time is deleted.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(super) const MEMBER_AGE_MAX: Duration = Duration::from_secs(3 * 3_600);
/// An event that has not come again for this time will not come again.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(super) const EVENT_AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A row: how often an event has begun without ending. 0 marks a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
pub struct Begun {
    pub id: EventId,
    pub times: u32,
}

/// The group, and the inbox of its attempts.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Place<'a> {
    pub inbox: &'a Inbox,
    pub group: &'a str,
}

/// What a database records about attempts that did not end. Each call is a short transaction. A consumer (`member`) has
/// an id of the same form as events, because their rows are in one table.
#[doc(hidden)]
pub trait Attempts {
    /// Records that a consumer is running. It may be called again.
    fn enter(&self, at: Place<'_>, member: &EventId) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// Deletes rows that are no longer needed.
    fn tidy(&self, at: Place<'_>) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// The consumer has stopped normally.
    fn leave(&self, at: Place<'_>, member: &EventId) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// Returns all rows of the group. Rows of events that were processed meanwhile are deleted instead.
    fn begun(&self, at: Place<'_>) -> impl Future<Output = Result<Vec<Begun>, InboxError>> + Send;
    /// The event begins. With `alone` its count rises by one; otherwise it is at least 1. `None`: it was
    /// processed before.
    fn begins(
        &self,
        at: Place<'_>,
        event_id: &EventId,
        alone: bool,
    ) -> impl Future<Output = Result<Option<u32>, InboxError>> + Send;
    /// The event has ended without an effect: its count falls by one, and at 0 the row is deleted.
    fn ends(&self, at: Place<'_>, event_id: &EventId) -> impl Future<Output = Result<(), InboxError>> + Send;
}

impl Inbox {
    /// The table's name as configured; never use it in SQL.
    pub(super) fn attempts(&self) -> String {
        format!("{}_attempts", self.processed)
    }
}
