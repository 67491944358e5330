//! Where the events go, what fails there, and what arrived.

pub(super) mod jetstream;
pub(super) mod kafka;

use std::sync::Arc;

use pillarbox_testkit::{ledger::Ledger, proxy::Proxy, storm::Storm};

pub(super) trait Broker: Sized {
    const NAME: &'static str;
    /// Faults that are not tried here, in words.
    const NOT_COVERED: &'static [&'static str];
    /// Whether it drops an event that is published again.
    const DROPS_COPIES: bool;
    /// Whether a relay that publishes to it can be given a clock that steps.
    const CLOCK_STEPS: bool;
    /// As the configuration has them: a YAML list in one line.
    const ROUTES: &'static str;

    /// A server of the campaign's own. `None`: not installed.
    async fn start() -> Option<Self>;

    /// Name and version.
    async fn version(&self) -> String;

    /// The address for one relay, and the network link it leads through, if that is the relay's own.
    async fn link(&self) -> (Option<Arc<Proxy>>, String);

    fn fail(&self, storm: &mut Storm, ledger: &Arc<Ledger>);

    /// Tells the ledger what arrived since the last time.
    async fn receive(&self, ledger: &Ledger);

    /// How many copies arrived so far that were not dropped.
    async fn copies(&self, ledger: &Ledger) -> usize;
}
