//! Events that can't be checked yet.

use std::time::Duration;

use super::{Entry, Window};
use crate::settlement::{Failed, FailedTry};

impl Window {
    /// Admits an event, from discovery or the side table, that can't be checked yet. It fails without being charged, so
    /// that its key waits in the side table. The store returns the first event of the key again.
    pub(in crate::engine) fn admit_unchecked(
        &mut self,
        entry: Entry,
        delayed: bool,
        failure: FailedTry,
        retry_in: Duration,
    ) {
        let key = entry.key;
        let here = self.keys.contains_key(&key) || self.parked_keys.contains_key(&key);
        if entry.is_parked() && !delayed && here {
            return;
        }
        if self.aside.has(key) || entry.is_parked() && !self.parked.insert(entry.event.seq) {
            return;
        }
        if entry.is_parked() {
            *self.parked_keys.entry(key).or_default() += 1;
        }
        self.count_in(&entry);
        self.blocked.insert(key);
        self.settling.settlement.failed.push(Failed {
            parked: entry.to_parked(),
            attempts: entry.event.attempts,
            charged: false,
            failure,
            retry_in,
        });
        self.joins(key);
        self.settling.receipts.push(entry.receipt(true));
    }
}
