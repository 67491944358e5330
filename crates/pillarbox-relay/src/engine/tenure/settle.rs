//! Settling: what became of the events is written to the store, in batches.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{watch::Job, window::Settling},
    Done, End, Tenure,
};
use crate::store::{Settled, StoreError, StoreErrorKind};

/// Results wait this long for company before they are written down: fewer, larger statements. No event waits for it.
const SETTLE_LINGER: Duration = Duration::from_millis(5);
/// Unless there are this many.
const SETTLE_EVENTS: usize = 1_000;
/// A store that fails is tried again after this, then more and more rarely.
pub(super) const STORE_RETRY: Duration = Duration::from_millis(100);
const STORE_RETRY_MAX: Duration = Duration::from_secs(2);

impl Tenure<'_> {
    pub(super) fn start_settling(&mut self) {
        if self.side_table_busy {
            return;
        }
        let settling = match self.postponed.take() {
            Some((settling, at)) if at <= Instant::now() => settling,
            Some(later) => {
                self.postponed = Some(later);
                return;
            }
            None => {
                let waiting = self.window.unsettled();
                if waiting == 0 {
                    return;
                }
                let since = *self.unsettled_since.get_or_insert_with(Instant::now);
                if waiting < SETTLE_EVENTS && since.elapsed() < SETTLE_LINGER && self.ending.is_none() {
                    return;
                }
                let Some(settling) = self.window.take_settling() else {
                    return;
                };
                settling
            }
        };
        self.unsettled_since = None;
        self.side_table_busy = true;
        let (store, held) = (self.context.store.clone(), self.held.clone());
        self.spawn(Job::Settle, async move {
            let result = store.settle(&held, &settling.settlement).await;
            Done::Settled { settling, result }
        });
    }

    pub(super) fn apply_settled(&mut self, settling: Settling, result: Result<Settled, StoreError>) {
        self.side_table_busy = false;
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

    /// When the next settlement can start without another result.
    pub(super) fn next_settling(&self) -> Option<Instant> {
        match (&self.postponed, self.side_table_busy) {
            (_, true) => None,
            (Some((_, at)), false) => Some(*at),
            (None, false) => self.unsettled_since.map(|since| since + SETTLE_LINGER),
        }
    }
}
