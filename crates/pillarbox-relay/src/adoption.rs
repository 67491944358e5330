//! Taking over a table that a team already has.
//!
//! The table stays as it is. A trigger copies each new row into Pillarbox's own outbox, in the producer's transaction, and
//! another one brings the row's own columns up to date when a relay settles the event. So the delivery is the same as
//! for any outbox. [`Layout`] says which column is what.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

use crate::{layout::Layout, store::StoreError};

/// How long the adoption waits for its short lock on a busy table.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(60);

/// Which of the rows that exist already are delivered. New rows always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All that their table shows as not delivered.
    Everything,
    /// None.
    Now,
    /// Those created at this time or later.
    From(Timestamp),
}

/// What an adoption would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What it adds, one line each.
    pub adds: Vec<String>,
    /// The statements, except those that copy rows.
    pub sql: String,
    /// Whether the table is adopted already.
    pub adopted: bool,
    /// What an operator should know first, one sentence each.
    pub warnings: Vec<String>,
}

/// What an adoption did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Adopted {
    /// One line for each thing.
    pub done: Vec<String>,
    /// How many earlier rows were copied.
    pub copied: u64,
}

/// A store that can take over a table.
#[async_trait]
pub trait Adoption: Send + Sync + 'static {
    /// Looks at the table and changes nothing.
    async fn plan(&self, layout: &Layout, start: Start) -> Result<Plan, StoreError>;

    /// Adopts the table, or goes on with an adoption that was interrupted. Calling it again changes nothing. Tells
    /// `progress` how many rows of how many were copied.
    async fn adopt(
        &self,
        layout: &Layout,
        start: Start,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Adopted, StoreError>;

    /// Removes everything that an adoption added, and leaves the table as it is. Returns a line for each thing. Without
    /// `force` it refuses if something would be lost, or sent again by the old worker.
    async fn undo(&self, layout: &Layout, force: bool) -> Result<Vec<String>, StoreError>;
}
