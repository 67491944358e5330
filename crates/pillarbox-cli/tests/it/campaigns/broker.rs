//! The broker of a campaign: its faults, and what arrived at it.

pub(super) mod jetstream;
pub(super) mod kafka;

use std::sync::Arc;

use pillarbox_testkit::{ledger::Ledger, proxy::Proxy, storm::Storm};

pub(super) trait Broker: Sized {
    const NAME: &'static str;
    /// Faults that are not tested here, in words.
    const NOT_COVERED: &'static [&'static str];
    /// Whether it drops an event that is published again.
    const DROPS_COPIES: bool;
    /// Whether the clock of a relay that publishes to it can step.
    const CLOCK_STEPS: bool;
    /// The routes of the configuration: a YAML list in one line.
    const ROUTES: &'static str;

    /// Starts a private server. `None`: not installed.
    async fn start() -> Option<Self>;

    /// Name and version.
    async fn version(&self) -> String;

    /// The address for one relay, and its network link, if the relay has its own.
    async fn link(&self) -> (Option<Arc<Proxy>>, String);

    fn fail(&self, storm: &mut Storm, ledger: &Arc<Ledger>);

    /// Passes new arrivals to the ledger.
    async fn receive(&self, ledger: &Ledger);

    /// How many copies have arrived so far that were not dropped.
    async fn copies(&self, ledger: &Ledger) -> usize;
}
