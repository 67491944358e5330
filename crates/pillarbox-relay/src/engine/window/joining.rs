//! Events that are being written into the side table. Until then, what the store says about their keys is out of date.

use super::{Entry, Window, key::KeyId};

impl Window {
    pub(super) fn hold(&mut self, entry: Entry) {
        self.joins(entry.key);
        self.to_hold.push(entry);
    }

    /// An event of this key is being written into the side table.
    pub(super) fn joins(&mut self, key: KeyId) {
        *self.joining.entry(key).or_default() += 1;
    }

    pub(super) fn joined(&mut self, key: KeyId) {
        if let Some(count) = self.joining.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.joining.remove(&key);
            }
        }
    }
}
