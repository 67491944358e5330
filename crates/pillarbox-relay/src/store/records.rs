//! Records: small rows beside the outbox, each with a version, a due time and a lease.
//!
//! Features that several relays share are built on them once, for every database: notices and their deliveries
//! ([`crate::notice::Notices`]), and the runs of schedules ([`crate::reprocess::Schedules`]).

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;

/// Which record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// The feature it belongs to.
    pub space: String,
    pub name: String,
    /// Records with the same space and name form a queue in this order. 0 if there is only one.
    pub place: i64,
}

impl RecordKey {
    /// The only record of this name.
    pub fn new(space: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            space: space.into(),
            name: name.into(),
            place: 0,
        }
    }
}

/// A record, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: RecordKey,
    /// Every write and every claim raises it by one. The first one is 1.
    pub version: u64,
    /// How often it was claimed.
    pub claims: u32,
    /// The feature's own JSON.
    pub value: String,
    /// When `value` was written.
    pub written_at: Timestamp,
}

/// One write to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: RecordKey,
    /// The version that the record must have. 0: there must be no such record.
    pub version: u64,
    /// `None` removes the record.
    pub content: Option<Content>,
}

/// The new content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub value: String,
    /// The time until it can be claimed. `None`: never.
    pub due_in: Option<Duration>,
    /// After this time, [`Records::drop_expired`] removes it. `None`: it stays.
    pub keep_for: Option<Duration>,
}

/// The result of [`Records::claim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordClaim {
    One(Box<Record>),
    /// Nothing is due. `next` is the time until the next record is, if there is one.
    Nothing {
        next: Option<Duration>,
    },
}

/// The records of an outbox. Times are those of the database's clock.
///
/// `write` applies all changes or none. A change applies only to the version it names: if several relays change the
/// same version, one succeeds. `claim` leases one due record. The record is due again when the lease ends, unless
/// its holder writes or removes it first. A claim raises the version, so a holder whose lease has ended can't
/// overwrite the next holder's work. Only the first due record of a queue can be claimed.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// The database's time and the records of a space, latest first: those of one name, or all. At most `limit`.
    async fn read(
        &self,
        space: &str,
        name: Option<&str>,
        limit: usize,
    ) -> Result<(Timestamp, Vec<Record>), StoreError>;

    /// False: a record did not have the version that its change names. Nothing was written.
    async fn write(&self, changes: &[Change]) -> Result<bool, StoreError>;

    /// Claims the record of a space that has been due longest.
    async fn claim(&self, space: &str, lease: Duration) -> Result<RecordClaim, StoreError>;

    /// Removes the records whose `keep_for` is over.
    async fn drop_expired(&self) -> Result<(), StoreError>;
}
