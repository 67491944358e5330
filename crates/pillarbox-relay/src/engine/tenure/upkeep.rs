//! The heartbeat, which renews the leases, and the report of this relay's troubles.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        lanes::{Beat, Change},
        watch::Job,
    },
    Done, End, Tenure,
};
use crate::store::{StoreError, Trouble};

/// Lasting troubles are reported again after this time. The relay's row, with its earlier report, may have been deleted
/// when its lease expired.
const REPORT_AGAIN: Duration = Duration::from_secs(5);

impl Tenure<'_> {
    pub(super) fn apply_beat(&mut self, result: Result<Beat, StoreError>) {
        let mut next = self.beat.every;
        self.watch.done(Job::Heartbeat, Instant::now());
        match result {
            Ok(beat) => {
                self.context.store_is_up();
                let before = self.leases.lanes.len();
                match self.leases.merge_beat(beat) {
                    Change::Keep => {}
                    Change::Gained => self.end(End::Regroup { surplus: 0 }),
                    Change::Surplus(surplus) => self.end(End::Regroup { surplus }),
                    Change::Lost => {
                        let lost = before.saturating_sub(self.leases.lanes.len());
                        self.context.progress.recorded.lanes_lost.inc_by(lost as u64);
                        tracing::warn!("another relay took some lanes: starting again with the others");
                        self.end(End::Store(StoreError::fenced()));
                    }
                }
            }
            Err(error) => {
                self.context.store_is_down(&error);
                next /= 4;
            }
        }
        self.beat.done(next);
    }

    /// Writes the relay's troubles to the store if they have changed.
    pub(super) fn start_report(&mut self) {
        if !self.report.start() {
            return;
        }
        let troubles = self.context.progress.troubles(&self.context.options.name);
        let (reported, at) = &*self.reported;
        let fresh = troubles.is_empty() || at.elapsed() < REPORT_AGAIN;
        if troubles == *reported && fresh {
            self.report.done(self.report.every);
        } else {
            let (store, relay) = (self.context.store.clone(), self.leases.relay());
            self.spawn(Job::Report, async move {
                let result = store.report(relay, &troubles).await;
                Done::Reported { troubles, result }
            });
        }
    }

    pub(super) fn apply_reported(&mut self, troubles: Vec<Trouble>, result: Result<(), StoreError>) {
        self.report.done(self.report.every);
        if result.is_ok() {
            *self.reported = (troubles, Instant::now());
        }
    }
}
