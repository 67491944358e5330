//! Events of a destination that accepts nothing for a long time. They move to the side table, so that they block
//! neither memory nor the low mark.

use std::{collections::VecDeque, time::Duration};

use super::{DestinationId, Entry, Window};
use crate::{
    event::Seq,
    settlement::{Failed, FailedTry},
};

/// At most this many events that may be the reason themselves stay in the window. The store returns the same events
/// first, so without them no other would be tried.
const SUSPECTS_MAX: usize = 20;

/// The events that stay for the trials of their destination.
fn for_trials(queue: &VecDeque<Entry>) -> Vec<Seq> {
    let can_stay = |suspect: bool| {
        let some = queue.iter().filter(|entry| entry.is_parked_head_or_held());
        some.filter(move |entry| entry.suspect == suspect)
            .map(|entry| entry.event.seq)
    };
    can_stay(false)
        .take(1)
        .chain(can_stay(true).take(SUSPECTS_MAX))
        .collect()
}

impl Window {
    /// Whether the window has more events for the destination than those that are kept for its trials.
    pub(in crate::engine) fn can_park(&self, destination: DestinationId) -> bool {
        let Some(queue) = self.ready.get(destination) else {
            return false;
        };
        let behind = |entry: &Entry| {
            let waiting = self.keys.get(&entry.key);
            waiting.is_some_and(|waiting| !waiting.is_empty())
        };
        queue.len() > for_trials(queue).len() || queue.iter().any(behind)
    }

    /// Writes the events for the destination into the side table, without charging them, with all events behind them in
    /// their keys. Those that are already there only leave the window. A few of these stay, for the trials of the
    /// destination.
    pub(in crate::engine) fn park(
        &mut self,
        destination: DestinationId,
        failure: &FailedTry,
        retry_in: Duration,
    ) {
        let queue = self.ready.get_mut(destination).map(std::mem::take);
        let queue = queue.unwrap_or_default();
        let stay = for_trials(&queue);
        for entry in queue {
            let key = entry.key;
            self.blocked.insert(key);
            self.hold_waiting(key);
            if stay.contains(&entry.event.seq) {
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
                charged: false,
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
