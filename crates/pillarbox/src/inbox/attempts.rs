//! What has begun and not ended, across the deaths of processes: see [`consume`](crate::consume) for who asks.
//!
//! A small table beside the inbox, `<inbox>_attempts`. A row is an event that a handler has begun and not ended, with how
//! often; or, with none, a consumer that is at work and has not left in order.

use std::time::Duration;

use uuid::Uuid;

use super::{Inbox, InboxError};

/// More rows than these nobody leaves behind; whoever looks need not hold more.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(super) const ROWS_MAX: i64 = 10_000;
/// A consumer says now and then that it is there. One that has not for so long is forgotten.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(super) const MEMBER_AGE_MAX: Duration = Duration::from_secs(3 * 3_600);
/// An event that has not come again for so long will not.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub(super) const EVENT_AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A row: how often an event has begun without ending, or 0 and a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Begun {
    pub id: Uuid,
    pub times: u32,
}

/// Whose attempts, and where they are written down.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Place<'a> {
    pub inbox: &'a Inbox,
    pub group: &'a str,
}

/// What a database can say of attempts that did not end. Each call is a short transaction of its own.
#[doc(hidden)]
pub trait Attempts {
    /// Notes that a consumer is at work, again if it did before.
    fn enter(&self, at: Place<'_>, member: Uuid) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// Drops what nobody will ask for any more.
    fn tidy(&self, at: Place<'_>) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// The consumer has left in order.
    fn leave(&self, at: Place<'_>, member: Uuid) -> impl Future<Output = Result<(), InboxError>> + Send;
    /// All rows of the group but those of events that were processed after all, which go.
    fn begun(&self, at: Place<'_>) -> impl Future<Output = Result<Vec<Begun>, InboxError>> + Send;
    /// The event begins. `alone`: its count rises; else it is 1 at least. `None`: it was processed before.
    fn begins(
        &self,
        at: Place<'_>,
        event_id: Uuid,
        alone: bool,
    ) -> impl Future<Output = Result<Option<u32>, InboxError>> + Send;
    /// It has ended without an effect: its count falls, and the row goes with the last.
    fn ends(&self, at: Place<'_>, event_id: Uuid) -> impl Future<Output = Result<(), InboxError>> + Send;
}

impl Inbox {
    /// The name of the table, as configured: never for SQL.
    pub(super) fn attempts(&self) -> String {
        format!("{}_attempts", self.processed)
    }
}
