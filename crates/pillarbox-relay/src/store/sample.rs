//! Figures about an outbox for metrics and health. Reading them costs about the same whatever the backlog and the
//! history.

use std::{collections::BTreeMap, time::Duration};

use crate::{pressure::Standing, settlement::DeadReason};

/// A sample counts at most this many pending events, rows of the side table and open letters of each kind. Counting
/// them takes 5 to 20 ms.
pub const SAMPLE_ROWS_MAX: u64 = 10_000;

/// The state of an outbox, counted up to [`SAMPLE_ROWS_MAX`]. [`super::Admin::status`] counts exactly and may take long.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Committed, and waiting for the first attempt. An SQL database adds an upper bound of what it did not count.
    pub pending: u64,
    /// `pending` is not an exact count.
    pub pending_estimated: bool,
    pub failed: u64,
    pub held: u64,
    pub delayed: u64,
    /// Keys that are blocked: a failing, held or blocking dead event of them is in the side table.
    pub keys_held: u64,
    /// Open dead letters by reason.
    pub dead: BTreeMap<DeadReason, u64>,
    /// Age of the oldest event that is pending (not delayed), failed or held.
    pub oldest_age: Option<Duration>,
    /// Lanes that no living relay has leased. Their events wait.
    pub lanes_without_owner: u16,
    /// Relays that are alive.
    pub relays: u16,
    /// All events in the table, estimated.
    pub rows: Option<u64>,
    pub table_bytes: Option<u64>,
    pub index_bytes: Option<u64>,
    /// The classes of topics whose producers may be slowed or refused. Empty if nothing is limited.
    pub pressure: Vec<Standing>,
    /// Updates of rows since the database's statistics began. Only PostgreSQL counts them.
    pub updates: Option<Updates>,
}

/// Settling should be a HOT update: one that writes no index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Updates {
    pub all: u64,
    pub hot: u64,
}
