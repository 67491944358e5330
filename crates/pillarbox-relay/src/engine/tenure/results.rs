//! What came of the things a tenure had started.

use tokio::time::Instant;

use super::{
    super::{
        RelayError,
        lanes::{Beat, Change},
        window::{Resolution, Settling},
    },
    Done, End, STORE_RETRY, STORE_RETRY_MAX, Tenure,
};
use crate::store::{Settled, StoreError, StoreErrorKind};

impl Tenure<'_> {
    pub(super) fn take_in(&mut self, done: Done) {
        match done {
            Done::Published {
                desk,
                batch,
                outcomes,
            } => {
                self.publishing -= 1;
                let desk = &mut self.desks[desk];
                desk.in_flight -= 1;
                let (policy, progress) = (&self.context.options.retry, &self.context.progress);
                match desk.resolve(batch, outcomes, policy, self.rng, progress) {
                    Ok(resolved) => {
                        let delivered = |(_, resolution): &&(_, _)| *resolution == Resolution::Delivered;
                        progress.delivered(resolved.iter().filter(delivered).count());
                        self.window.complete(resolved);
                    }
                    Err(error) => {
                        let sink = desk.name.to_string();
                        self.end(End::Fatal(RelayError::Sink { sink, error }));
                    }
                }
            }
            Done::Checked { desk, result } => {
                let desk = &mut self.desks[desk];
                if let Err(error) = desk.checked(result, &self.context.progress) {
                    let sink = desk.name.to_string();
                    self.end(End::Fatal(RelayError::Sink { sink, error }));
                }
            }
            Done::Settled { settling, result } => self.take_in_settled(settling, result),
            Done::Due(result) => {
                self.ledger_busy = false;
                match result {
                    Ok(due) if self.ending.is_none() => self.admit_due(due),
                    Ok(_) => {}
                    Err(error) => self.end(End::Store(error)),
                }
            }
            Done::Beat(result) => self.take_in_beat(result),
            Done::Swept(result) => {
                self.sweep.done(self.context.options.sweep_interval);
                if let Ok(missed) = result {
                    self.admit_missed(missed);
                }
            }
        }
    }

    fn take_in_settled(&mut self, settling: Settling, result: Result<Settled, StoreError>) {
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

    fn take_in_beat(&mut self, result: Result<Beat, StoreError>) {
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
