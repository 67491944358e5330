//! Events that are left in the store while a sink is away, so that they do not fill the window and delay other sinks.

use std::collections::{HashSet, VecDeque};

use super::{Entry, Window, key::KeyId};

/// How many keys are remembered: about 10 MB.
const KEYS_MAX: usize = 200_000;

pub(super) struct Aside {
    /// For each sink: whether its events are left in the store.
    closed: Vec<bool>,
    /// Keys with an event that was dropped. Their later events are dropped too, whichever sink they are for.
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

impl Window {
    /// Drops the events that wait for this sink, and from now on every event for it, with all events behind them in
    /// their keys. They are in the store, and the low mark stays below them.
    pub(in crate::engine) fn close(&mut self, sink: usize) {
        self.pages.freeze();
        self.aside.close(sink);
        // All events of a destination are for one sink.
        let of_sink =
            |queue: &&mut VecDeque<Entry>| queue.front().is_some_and(|entry| entry.target.sink == sink);
        let queues: Vec<_> = self
            .ready
            .iter_mut()
            .filter(of_sink)
            .map(std::mem::take)
            .collect();
        for entry in queues.into_iter().flatten() {
            let behind = self.keys.remove(&entry.key).unwrap_or_default();
            self.put_aside(entry);
            behind.into_iter().for_each(|entry| self.put_aside(entry));
        }
    }

    pub(in crate::engine) fn is_closed(&self, sink: usize) -> bool {
        self.aside.is_closed(sink)
    }

    /// Whether the window may read more. It must remember the keys of the events that it dropped.
    pub(in crate::engine) fn can_read_on(&self) -> bool {
        self.aside.has_room()
    }

    /// Whether every event that was read is in the window or settled.
    pub(in crate::engine) fn is_whole(&self) -> bool {
        !self.pages.is_frozen()
    }

    pub(super) fn put_aside(&mut self, entry: Entry) {
        self.aside.add(entry.key);
        self.events -= 1;
        self.bytes -= entry.event.bytes();
        if entry.is_parked() {
            self.forget_parked(entry.event.seq, entry.key);
        }
    }
}
