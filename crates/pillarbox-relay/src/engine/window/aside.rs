//! What is left to the store while a sink is away, so that it does not fill the window and keep the other sinks waiting.

use std::collections::HashSet;

use super::key::KeyId;

/// Keys that are remembered: some 10 MB.
const KEYS_MAX: usize = 200_000;

pub(super) struct Aside {
    /// Per sink: nothing for it is kept.
    closed: Vec<bool>,
    /// Keys with an event that was not kept: their later events are not kept either, whichever sink they are for.
    keys: HashSet<KeyId>,
}

impl Aside {
    pub(super) fn new(sinks: usize) -> Self {
        Self {
            closed: vec![false; sinks],
            keys: HashSet::new(),
        }
    }

    pub(super) fn close(&mut self, sink: usize) {
        self.closed[sink] = true;
    }

    pub(super) fn is_closed(&self, sink: usize) -> bool {
        self.closed[sink]
    }

    pub(super) fn add(&mut self, key: KeyId) {
        self.keys.insert(key);
    }

    pub(super) fn has(&self, key: KeyId) -> bool {
        !self.keys.is_empty() && self.keys.contains(&key)
    }

    pub(super) fn has_room(&self) -> bool {
        self.keys.len() < KEYS_MAX
    }
}
