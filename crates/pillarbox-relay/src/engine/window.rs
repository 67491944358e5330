//! The window between discovery and settling. It decides which event may be sent now, which event waits for its key,
//! and which results are written. Pure: no I/O, no clock, no randomness, so that a property test can drive it.
//!
//! At most one event of a key is in flight; at an ordered sink, the events of one batch. A key with a failing event is
//! *blocked*. Its later events are held: they are written into the side table until the store says that the key is
//! free. A key is also blocked when one of its events died and the route says `after_death: block` or `latest`. The
//! store then decides which event is next.

mod aside;
mod entry;
mod joining;
mod key;
mod park;
#[cfg(test)]
mod tests;
mod unchecked;

use std::collections::{HashMap, HashSet, VecDeque};

use pillarbox::lane::key_hash;

pub(super) use self::entry::{Entry, Resolution, Settling, Target};
use self::{
    aside::Aside,
    entry::Receipt,
    key::{KeyId, KeyMap},
};
use super::{destinations::DestinationId, tally::Tally};
use crate::{
    event::{Lane, Seq},
    settlement::{Dead, Delayed, Failed},
};

pub(super) struct Window {
    /// For each sink: whether one batch may contain several events of a key.
    ordered: Vec<bool>,
    /// For each destination: the events that can be sent now.
    ready: Vec<VecDeque<Entry>>,
    /// Keys with an event that is ready or in flight, and the events behind it.
    keys: KeyMap<VecDeque<Entry>>,
    /// Keys with failing, held or blocking dead events in the side table.
    blocked: HashSet<KeyId>,
    /// Events of the side table that are in the window. The store returns them again until they are settled; this set
    /// recognises them.
    parked: HashSet<Seq>,
    /// Their number for each key.
    parked_keys: HashMap<KeyId, usize>,
    pages: Tally,
    settling: Settling,
    /// What is set aside while a sink is away.
    aside: Aside,
    /// Events that will be written into the side table, unless their key becomes free before that.
    to_hold: Vec<Entry>,
    /// Keys with events that are being written into the side table, and their number. What the store says about such a
    /// key is out of date.
    joining: HashMap<KeyId, usize>,
    events: usize,
    bytes: usize,
}

impl Window {
    pub(super) fn new(
        ordered: Vec<bool>,
        blocked: impl IntoIterator<Item = (Lane, u64)>,
        low_mark: Seq,
    ) -> Self {
        Self {
            ready: Vec::new(),
            aside: Aside::new(ordered.len()),
            ordered,
            keys: KeyMap::default(),
            blocked: blocked.into_iter().collect(),
            parked: HashSet::new(),
            parked_keys: HashMap::new(),
            pages: Tally::new(low_mark),
            settling: Settling::default(),
            to_hold: Vec::new(),
            joining: HashMap::new(),
            events: 0,
            bytes: 0,
        }
    }

    /// Events and bytes in the window: read and not yet settled.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.events, self.bytes)
    }

    /// Everything up to here is settled and decided.
    pub(super) fn low_mark(&self) -> Seq {
        self.pages.low_mark()
    }

    /// Registers a page of discovery: its seqs, and how far the store is decided. Each of its events must follow in one
    /// of the `admit…` calls.
    pub(super) fn open_page(&mut self, seqs: impl Iterator<Item = Seq>, decided: Seq) -> u64 {
        self.pages.open(seqs, decided)
    }

    /// How far discovery has returned everything, and which of these events may be unsettled.
    pub(super) fn decided(&self) -> (Seq, HashSet<Seq>) {
        self.pages.decided()
    }

    /// Whether discovery returned this event and it may be unsettled.
    pub(super) fn may_hold(&self, seq: Seq) -> bool {
        self.pages.contains(seq)
    }

    /// Admits an event from discovery, in its order.
    pub(super) fn admit(&mut self, entry: Entry) {
        if self.aside.has(entry.key) {
            return;
        }
        self.count_in(&entry);
        if self.blocked.contains(&entry.key) {
            self.hold(entry);
        } else {
            self.queue_in_key(entry);
        }
    }

    /// Admits an event from discovery that is not due yet.
    pub(super) fn admit_delayed(&mut self, entry: Entry, available_at: jiff::Timestamp) {
        self.count_in(&entry);
        self.settling.settlement.delayed.push(Delayed {
            parked: entry.to_parked(),
            available_at,
        });
        self.settling.receipts.push(entry.receipt(false));
    }

    /// Admits a row, from discovery or the side table, that will never be delivered.
    pub(super) fn admit_dead(&mut self, dead: Dead, page: Option<u64>) {
        self.events += 1;
        let key = (dead.lane, dead.key.as_deref().map_or(0, key_hash));
        let joins = dead.holds_its_key();
        if joins {
            self.blocked.insert(key);
            self.joins(key);
        }
        self.settling.receipts.push(Receipt {
            page,
            seq: dead.seq,
            key,
            bytes: 0,
            joins,
        });
        self.settling.settlement.dead.push(dead);
    }

    /// Admits a due event of the side table. The store returns it until it is settled, so it is skipped if it is
    /// already here. `delayed`: the event waited for its `available_at`. It waits behind the failing events of its key,
    /// if there are any.
    pub(super) fn admit_parked(&mut self, mut entry: Entry, delayed: bool) {
        debug_assert!(entry.is_parked());
        entry.delayed = delayed;
        // Events of this key are still being written to the side table, so this answer may be out of date. Sending now
        // could overtake them. The store is asked again after the write.
        let stale = self.joining.contains_key(&entry.key)
            || self.parked_keys.contains_key(&entry.key) && !self.keys.contains_key(&entry.key);
        // The event stays in the store, which will return it again.
        if self.aside.is_closed(entry.target.sink) {
            if !delayed {
                self.aside.add(entry.key);
            }
            return;
        }
        if stale || self.aside.has(entry.key) || !self.parked.insert(entry.event.seq) {
            return;
        }
        *self.parked_keys.entry(entry.key).or_default() += 1;
        self.count_in(&entry);
        if delayed && self.blocked.contains(&entry.key) {
            self.hold(entry);
        } else {
            self.queue_in_key(entry);
        }
    }

    /// Whether this event of the side table is in the window.
    pub(super) fn has_parked(&self, seq: Seq) -> bool {
        self.parked.contains(&seq)
    }

    /// Takes up to `max` events for these destinations of one sink, from keys with nothing else in flight.
    pub(super) fn take_batch(
        &mut self,
        destinations: impl IntoIterator<Item = DestinationId>,
        max: usize,
    ) -> Vec<Entry> {
        let mut batch = Vec::new();
        for destination in destinations {
            while batch.len() < max {
                let Some(entry) = self.ready.get_mut(destination).and_then(VecDeque::pop_front) else {
                    break;
                };
                let (key, ordered) = (entry.key, self.ordered[entry.target.sink]);
                batch.push(entry);
                if ordered && let Some(waiting) = self.keys.get_mut(&key) {
                    let next = |waiting: &VecDeque<Entry>| {
                        waiting
                            .front()
                            .is_some_and(|next| next.target.destination == destination)
                    };
                    while batch.len() < max && next(waiting) {
                        batch.extend(waiting.pop_front());
                    }
                }
            }
        }
        batch
    }

    /// Takes one event for the trial of a paused destination. If possible, not one that got no clear answer before, because
    /// such an event may itself be the reason. Such events take turns: the latest is at the front.
    pub(super) fn take_trial(&mut self, destination: DestinationId) -> Option<Entry> {
        let queue = self.ready.get_mut(destination)?;
        match queue.iter().position(|entry| !entry.suspect) {
            Some(at) => queue.remove(at),
            None => queue.pop_back(),
        }
    }

    pub(super) fn has_ready(&self, destination: DestinationId) -> bool {
        self.ready.get(destination).is_some_and(|queue| !queue.is_empty())
    }

    /// Whether an event for a trial is ready. One that may itself be the reason is tried only if there is no other.
    pub(super) fn has_good_trial(&self, destination: DestinationId) -> bool {
        let queue = self.ready.get(destination);
        queue.is_some_and(|queue| queue.iter().any(|entry| !entry.suspect))
    }

    fn push_ready(&mut self, entry: Entry) {
        let destination = entry.target.destination;
        if self.ready.len() <= destination {
            self.ready.resize_with(destination + 1, VecDeque::new);
        }
        // Such an event is sent before the others. Their answers show whether it is at fault.
        if entry.suspect {
            self.ready[destination].push_front(entry);
        } else {
            self.ready[destination].push_back(entry);
        }
    }

    /// Applies the results of a batch, in its order.
    pub(super) fn complete(&mut self, batch: Vec<(Entry, Resolution)>) {
        let mut keys: Vec<KeyId> = batch.iter().map(|(entry, _)| entry.key).collect();
        let mut failed = Vec::new();
        let mut returned = Vec::new();
        for (entry, resolution) in batch {
            let mut joins = false;
            match resolution {
                Resolution::Returned => {
                    returned.push(entry);
                    continue;
                }
                Resolution::Delivered => self.delivered(&entry),
                Resolution::Retry { failure, retry_in } => {
                    self.blocked.insert(entry.key);
                    failed.push(entry.key);
                    joins = true;
                    let attempts = entry.event.attempts + 1;
                    self.settling.settlement.failed.push(Failed {
                        parked: entry.to_parked(),
                        attempts,
                        charged: true,
                        failure,
                        retry_in,
                    });
                }
                Resolution::Dead { reason, failure } => {
                    let dead = entry.died(reason, failure);
                    if dead.holds_its_key() {
                        self.blocked.insert(entry.key);
                        failed.push(entry.key);
                        joins = true;
                    }
                    self.settling.settlement.dead.push(dead);
                }
            }
            if joins {
                self.joins(entry.key);
            }
            self.settling.receipts.push(entry.receipt(joins));
        }
        for entry in returned.into_iter().rev() {
            self.keys.entry(entry.key).or_default().push_front(entry);
        }
        for key in failed {
            self.hold_waiting(key);
        }
        // A batch for an ordered sink may contain a key several times. Each key advances once.
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.advance(key);
        }
    }

    fn delivered(&mut self, entry: &Entry) {
        let settlement = &mut self.settling.settlement;
        if entry.is_parked() {
            settlement.published_parked.push(entry.to_parked());
        } else {
            settlement.published.push(entry.event.seq);
        }
        if entry.target.event_log {
            settlement.logged.push(entry.event.seq);
            self.settling.logged_sinks.push(entry.target.sink);
        }
    }

    /// Takes all results that can be written now.
    pub(super) fn take_settling(&mut self) -> Option<Settling> {
        for entry in self.to_hold.drain(..) {
            self.settling.settlement.held.push(entry.to_parked());
            self.settling.receipts.push(entry.receipt(true));
        }
        (!self.settling.settlement.is_empty()).then(|| std::mem::take(&mut self.settling))
    }

    /// How many results wait to be written.
    pub(super) fn unsettled(&self) -> usize {
        self.settling.settlement.len() + self.to_hold.len()
    }

    /// The store has written a settlement. `free` are the keys without failing, held or blocking
    /// dead events.
    pub(super) fn settled(&mut self, settling: &Settling, free: &[(Lane, String)]) {
        for receipt in &settling.receipts {
            self.events -= 1;
            self.bytes -= receipt.bytes;
            if receipt.joins {
                self.joined(receipt.key);
            }
            match receipt.page {
                Some(page) => self.pages.settled(page),
                None => self.forget_parked(receipt.seq, receipt.key),
            }
        }
        for (lane, key) in free {
            self.unblock((*lane, key_hash(key)));
        }
    }

    /// The key is free. Its events that were about to be held are queued instead. The order is kept, because everything
    /// before them is settled.
    fn unblock(&mut self, key: KeyId) {
        // The key may have failed again while the settlement was being written. That failure is not written yet, so the
        // key stays blocked.
        let settlement = &self.settling.settlement;
        let failed = settlement.failed.iter().map(|failed| &failed.parked);
        let failed = failed.map(|parked| (parked.lane, key_hash(&parked.key)));
        let dead = settlement.dead.iter().filter(|dead| dead.holds_its_key());
        let dead = dead.filter_map(|dead| Some((dead.lane, key_hash(dead.key.as_deref()?))));
        let blocked_again = failed.chain(dead).any(|other| other == key);
        if blocked_again || !self.blocked.remove(&key) {
            return;
        }
        let (now_free, still_held) = self
            .to_hold
            .drain(..)
            .partition::<Vec<_>, _>(|entry| entry.key == key);
        self.to_hold = still_held;
        for entry in now_free {
            self.joined(key);
            self.queue_in_key(entry);
        }
    }

    fn queue_in_key(&mut self, entry: Entry) {
        match self.keys.get_mut(&entry.key) {
            Some(waiting) => waiting.push_back(entry),
            None if self.aside.is_closed(entry.target.sink) || self.aside.has(entry.key) => {
                self.put_aside(entry)
            }
            None => {
                self.keys.insert(entry.key, VecDeque::new());
                self.push_ready(entry);
            }
        }
    }

    /// Events behind a failed one move to the side table. Those that came from there only leave the window.
    fn hold_waiting(&mut self, key: KeyId) {
        let Some(waiting) = self.keys.get_mut(&key) else {
            return;
        };
        for entry in std::mem::take(waiting) {
            if entry.is_parked() {
                self.drop_parked(&entry);
            } else {
                self.hold(entry);
            }
        }
    }

    fn forget_parked(&mut self, seq: Seq, key: KeyId) {
        if self.parked.remove(&seq)
            && let Some(count) = self.parked_keys.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.parked_keys.remove(&key);
            }
        }
    }

    fn advance(&mut self, key: KeyId) {
        let Some(waiting) = self.keys.get_mut(&key) else {
            return;
        };
        match waiting.pop_front() {
            Some(next) if self.aside.is_closed(next.target.sink) => {
                let behind = self.keys.remove(&key).unwrap_or_default();
                self.put_aside(next);
                behind.into_iter().for_each(|entry| self.put_aside(entry));
            }
            Some(next) => self.push_ready(next),
            None => {
                self.keys.remove(&key);
            }
        }
    }

    fn count_in(&mut self, entry: &Entry) {
        self.events += 1;
        self.bytes += entry.event.bytes();
    }
}
