//! Events of a destination that accepts nothing for a long time. They move to the side table, so that they block
//! neither memory nor the low mark.

use std::time::Duration;

use super::{DestinationId, Entry, Window};
use crate::settlement::{Failed, FailedTry};

impl Window {
    /// Whether the window has more events for the destination than the one that is kept for its trial.
    pub(in crate::engine) fn can_park(&self, destination: DestinationId) -> bool {
        let Some(queue) = self.ready.get(destination) else {
            return false;
        };
        let more = |entry: &Entry| {
            let behind = self
                .keys
                .get(&entry.key)
                .is_some_and(|waiting| !waiting.is_empty());
            !entry.is_parked_head_or_held() || behind
        };
        queue.len() > 1 || queue.iter().any(more)
    }

    /// Writes the events for the destination into the side table, without charging them, with all events behind them in
    /// their keys. Those that are already there only leave the window. One of these stays, for the trial of the
    /// destination.
    pub(in crate::engine) fn park(
        &mut self,
        destination: DestinationId,
        failure: &FailedTry,
        retry_in: Duration,
    ) {
        let queue = self.ready.get_mut(destination).map(std::mem::take);
        let mut kept = false;
        for entry in queue.unwrap_or_default() {
            let key = entry.key;
            self.blocked.insert(key);
            self.hold_waiting(key);
            if entry.is_parked_head_or_held() && !kept {
                kept = true;
                self.push_ready(entry);
                continue;
            }
            self.keys.remove(&key);
            if entry.is_parked_head_or_held() {
                self.drop_parked(&entry);
                continue;
            }
            self.settling.settlement.failed.push(Failed {
                parked: entry.to_parked(),
                attempts: entry.event.attempts,
                failure: failure.clone(),
                retry_in,
            });
            self.joins(key);
            self.settling.receipts.push(entry.receipt(true));
        }
    }

    /// The event stays in the side table, and the store returns it again.
    pub(super) fn drop_parked(&mut self, entry: &Entry) {
        self.events -= 1;
        self.bytes -= entry.event.bytes();
        self.forget_parked(entry.event.seq, entry.key);
    }
}
                charged: false,
