//! The database of a campaign: its faults, and what it contains afterwards.

pub(super) mod mongodb;
pub(super) mod postgres;
pub(super) mod sqlite;

use std::{collections::HashSet, path::Path, sync::Arc};

use pillarbox::EventId;
use pillarbox_testkit::{ledger::Ledger, proxy::Proxy, storm::Storm};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(super) trait Database: Sized {
    const NAME: &'static str;
    /// Faults that are not tested here, in words.
    const NOT_COVERED: &'static [&'static str];
    /// How far the relays' clock may step.
    const CLOCK_SECONDS_MAX: i64 = 90;

    /// Starts a private server. `None`: not installed.
    async fn start(folder: &Path) -> Option<Self>;

    /// Name and version.
    async fn version(&self) -> String;

    /// The address for one relay, and its network link, if there is a network.
    async fn link(&self) -> (Option<Arc<Proxy>>, String);

    /// Creates the application's own tables.
    async fn prepare(&self);

    /// Starts producers. After they were stopped, the ledger contains everything they did.
    fn produce(&self, ledger: &Arc<Ledger>, seed: u64, stop: CancellationToken) -> JoinSet<()>;

    fn fail(&self, storm: &mut Storm);

    /// Which of these events exist in the outbox.
    async fn which_exist(&self, ids: &[EventId]) -> HashSet<EventId>;

    /// How many events are neither published nor dead.
    async fn unsettled(&self) -> u64;

    async fn charges(&self) -> Charges;
}

/// What the faults cost the events.
pub(super) struct Charges {
    pub(super) dead: u64,
    /// How many events have a counted attempt.
    pub(super) charged: u64,
    /// Some of the errors for which they were charged.
    pub(super) errors: Vec<String>,
}
