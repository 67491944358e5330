//! Beside the events: the heartbeat that keeps the lanes, and the report of what keeps this relay from delivering.

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

/// What lasts is reported again after this time: the relay's row, and what it reported, may have been lost with its lease.
const REPORT_AGAIN: Duration = Duration::from_secs(5);

impl Tenure<'_> {
    pub(super) fn apply_beat(&mut self, result: Result<Beat, StoreError>) {
        let mut next = self.beat.every;
        self.watch.done(Job::Heartbeat, Instant::now());
        match result {
            Ok(beat) => {
                self.context.store_is_up();
                match self.leases.absorb(beat) {
                    Change::Keep => {}
                    Change::Gained => self.end(End::Regroup { surplus: 0 }),
                    Change::Surplus(surplus) => self.end(End::Regroup { surplus }),
                    Change::Lost => {
                        tracing::warn!("lost lanes to another relay: starting again with what is left");
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

    /// Tells the store what keeps this relay from delivering, when that has changed.
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
