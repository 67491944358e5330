//! What came of the things a tenure had started.

use tokio::time::Instant;

use super::{
    super::{
        RelayError,
        lanes::{Beat, Change},
        publish::Judging,
        window::{Entry, Resolution, Settling},
    },
    Done, End, STORE_RETRY, STORE_RETRY_MAX, Tenure,
};
use crate::{
    sink::{Outcome, SinkError},
    store::{Settled, StoreError, StoreErrorKind},
};

impl Tenure<'_> {
    pub(super) fn apply_result(&mut self, done: Done) {
        match done {
            Done::Published {
                desk,
                batch,
                outcomes,
                trial,
            } => self.apply_outcomes(desk, batch, outcomes, trial),
            Done::Checked { desk, result } => {
                self.in_flight[desk].check = false;
                let checked = self.desks[desk].checked(result, &self.context.progress);
                self.unless_misconfigured(desk, checked);
            }
            Done::Settled { settling, result } => self.apply_settled(settling, result),
            Done::Due(result) => {
                self.ledger_busy = false;
                match result {
                    Ok(due) if self.ending.is_none() => self.admit_due(due),
                    Ok(_) => {}
                    Err(error) => self.end(End::Store(error)),
                }
            }
            Done::Swept(result) => {
                self.sweep.done(self.context.options.sweep_interval);
                if let Some(Ok(missed)) = result {
                    self.admit_missed(missed);
                }
            }
            Done::Reported { troubles, result } => {
                self.report.done(self.report.every);
                if result.is_ok() {
                    *self.reported = troubles;
                }
            }
        }
    }

    fn apply_outcomes(&mut self, desk: usize, batch: Vec<Entry>, outcomes: Vec<Outcome>, trial: bool) {
        let flight = &mut self.in_flight[desk];
        if trial {
            flight.trial = false;
            for entry in &batch {
                self.trying.remove(&entry.destination);
            }
        } else {
            flight.batches -= 1;
        }
        let paused_before = self.destinations.paused().count();
        let progress = &self.context.progress;
        let mut judging = Judging {
            destinations: self.destinations,
            policy: &self.context.options.retry,
            destination_outage_max: self.context.options.destination_outage_max,
            rng: self.rng,
            progress,
        };
        match self.desks[desk].resolve(batch, outcomes, trial, &mut judging) {
            Ok(resolved) => {
                let delivered = |(_, resolution): &&(_, _)| *resolution == Resolution::Delivered;
                progress.delivered(resolved.iter().filter(delivered).count());
                self.window.complete(resolved);
            }
            Err(error) => self.unless_misconfigured(desk, Err(error)),
        }
        // What waits in the side table for a destination that is up again can go out now.
        if self.destinations.paused().count() < paused_before {
            self.due_at = Instant::now();
            self.due_after = None;
        }
    }

    fn unless_misconfigured(&mut self, desk: usize, result: Result<(), SinkError>) {
        if let Err(error) = result {
            let sink = self.desks[desk].name.to_string();
            self.end(End::Fatal(RelayError::Sink { sink, error }));
        }
    }

    fn apply_settled(&mut self, settling: Settling, result: Result<Settled, StoreError>) {
        self.ledger_busy = false;
        match result {
            Ok(settled) => {
                self.retry_in = STORE_RETRY;
                self.context.store_is_up();
                self.context.progress.settled(&settling.settlement);
                self.window.settled(&settling, &settled.free);
                if !settling.settlement.is_plain() {
                    self.due_at = Instant::now();
                }
            }
            Err(error) if error.kind == StoreErrorKind::Fenced => {
                if let Some((end, _)) = &mut self.ending {
                    *end = End::Store(error);
                } else {
                    self.end(End::Store(error));
                }
            }
            Err(error) => {
                self.context.store_is_down(&error);
                self.postponed = Some((settling, Instant::now() + self.retry_in));
                self.retry_in = (self.retry_in * 2).min(STORE_RETRY_MAX);
            }
        }
    }

    pub(super) fn apply_beat(&mut self, result: Result<Beat, StoreError>) {
        let mut next = self.beat.every;
        match result {
            Ok(beat) => {
                self.context.store_is_up();
                match self.tenancy.absorb(beat) {
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
}
