//! Settling: writes the results of events to the store, in batches.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{watch::Job, window::Settling},
    Done, End, Tenure,
};
use crate::{
    log,
    settlement::LoggedBy,
    store::{Settled, StoreError, StoreErrorKind},
};

/// Results wait this long for others before they are written: fewer, larger statements. It delays no event.
const SETTLE_LINGER: Duration = Duration::from_millis(5);
/// This many results are written at once.
const SETTLE_EVENTS: usize = 1_000;
/// The first wait after the store failed. It doubles with each failure.
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
                let Some(mut settling) = self.window.take_settling() else {
                    return;
                };
                self.name_sinks(&mut settling);
                settling
            }
        };
        self.unsettled_since = None;
        self.side_table_busy = true;
        let (store, lanes) = (self.context.store.clone(), self.lanes.clone());
        self.spawn(Job::Settle, async move {
            let result = store.settle(&lanes, &settling.settlement).await;
            Done::Settled { settling, result }
        });
    }

    /// Says who delivered the events that the event log records.
    fn name_sinks(&self, settling: &mut Settling) {
        if settling.logged_sinks.is_empty() {
            return;
        }
        let sinks = settling.logged_sinks.iter();
        settling.settlement.logged_by = LoggedBy {
            relay: self.context.options.name.as_str().into(),
            sinks: sinks.map(|sink| self.slots[*sink].name.clone()).collect(),
        };
    }

    pub(super) fn apply_settled(&mut self, settling: Settling, result: Result<Settled, StoreError>) {
        self.side_table_busy = false;
        match result {
            Ok(settled) => {
                self.retry_in = STORE_RETRY;
                self.context.store_is_up();
                self.context.progress.settled(&settling.settlement);
                settling.settlement.dead.iter().for_each(log::dead_lettered);
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

    /// When the next settlement can start, if no other result arrives.
    pub(super) fn next_settling(&self) -> Option<Instant> {
        match (&self.postponed, self.side_table_busy) {
            (_, true) => None,
            (Some((_, at)), false) => Some(*at),
            (None, false) => self.unsettled_since.map(|since| since + SETTLE_LINGER),
        }
    }
}
