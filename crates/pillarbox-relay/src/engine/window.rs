//! What is between discovery and settling: which event may go out now, which waits for its key, which is to be written
//! down. Pure: no I/O, no clock, no randomness, so that a property test can drive it.
//!
//! Of one key at most one event (at an ordered sink: one batch's) is in flight. A key with a failing event is *blocked*: its
//! later events are held, that is, written into the side table, until the store says that the key is free. A key is
//! also blocked when one of its events died and the route says `after_death: block` or `latest`. The store then decides
//! which event is next.

mod aside;
mod entry;
mod joining;
mod key;
mod park;
#[cfg(test)]
mod tests;
mod waiting;

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
    /// Per sink: may several events of a key be in one batch?
    ordered: Vec<bool>,
    /// Per destination: events that can go out now.
    ready: Vec<VecDeque<Entry>>,
    /// Keys with an event ready or in flight, and those that wait behind it.
    keys: KeyMap<VecDeque<Entry>>,
    /// Keys with failing or held events in the side table.
    blocked: HashSet<KeyId>,
    /// Events of the side table that are in the window, as the store returns them until they are settled, and how many
    /// of each key.
    parked: HashSet<Seq>,
    parked_keys: HashMap<KeyId, usize>,
    pages: Tally,
    settling: Settling,
    /// What a sink that is away would fill the window with.
    aside: Aside,
    /// On their way into the side table, unless their key comes free before that.
    to_hold: Vec<Entry>,
    /// Keys with events on their way into the side table, and how many: what the store says of such a key is out of date.
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

    /// Events and bytes in the window: read and not settled.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.events, self.bytes)
    }

    /// Everything up to here is settled and decided.
    pub(super) fn low_mark(&self) -> Seq {
        self.pages.low_mark()
    }

    /// Notes a page of discovery: the seqs it brought, and how far the store is decided. Its events must follow, each
    /// by one of the `admit…` calls.
    pub(super) fn open_page(&mut self, seqs: impl Iterator<Item = Seq>, decided: Seq) -> u64 {
        self.pages.open(seqs, decided)
    }

    /// How far discovery had everything, and which of it may not be settled yet.
    pub(super) fn decided(&self) -> (Seq, HashSet<Seq>) {
        self.pages.decided()
    }

    /// Whether discovery brought this event and it may not be settled yet.
    pub(super) fn may_hold(&self, seq: Seq) -> bool {
        self.pages.contains(seq)
    }

    /// An event from discovery, in its order.
    pub(super) fn admit(&mut self, entry: Entry) {
        if self.aside.has(entry.key) {
            return;
        }
        self.count_in(&entry);
        if self.blocked.contains(&entry.key) {
            self.hold(entry);
        } else {
            self.enqueue(entry);
        }
    }

    /// An event from discovery whose time has not come.
    pub(super) fn admit_delayed(&mut self, entry: Entry, available_at: jiff::Timestamp) {
        self.count_in(&entry);
        self.settling.settlement.delayed.push(Delayed {
            parked: entry.to_parked(),
            available_at,
        });
        self.settling.receipts.push(entry.receipt(false));
    }

    /// A row from discovery or the side table that will never be delivered.
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

    /// An event of the side table whose time has come. The store returns it until it is settled, so one that is here is
    /// passed over. `delayed`: it does not belong to its key's failing ones, and waits with them where there are any.
    pub(super) fn admit_parked(&mut self, mut entry: Entry, delayed: bool) {
        debug_assert!(entry.is_parked());
        entry.delayed = delayed;
        // Events of this key are still being written to the side table, so this answer may be out of date. Sending now
        // could overtake them. The store is asked again after the write.
        let stale = self.joining.contains_key(&entry.key)
            || self.parked_keys.contains_key(&entry.key) && !self.keys.contains_key(&entry.key);
        // The store keeps it, and returns it again.
        if self.aside.is_closed(entry.sink) {
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
            self.enqueue(entry);
        }
    }

    /// Whether this event of the side table is here.
    pub(super) fn has_parked(&self, seq: Seq) -> bool {
        self.parked.contains(&seq)
    }

    /// Up to `max` events for these destinations of one sink, of keys that have nothing else in flight.
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
                let (key, ordered) = (entry.key, self.ordered[entry.sink]);
                batch.push(entry);
                if ordered && let Some(waiting) = self.keys.get_mut(&key) {
                    let next = |waiting: &VecDeque<Entry>| {
                        waiting
                            .front()
                            .is_some_and(|next| next.destination == destination)
                    };
                    while batch.len() < max && next(waiting) {
                        batch.extend(waiting.pop_front());
                    }
                }
            }
        }
        batch
    }

    /// One event to find out whether a paused destination takes something. Not one that got no answer before, where
    /// there is another: such an event may itself be the reason.
    pub(super) fn take_trial(&mut self, destination: DestinationId) -> Option<Entry> {
        let queue = self.ready.get_mut(destination)?;
        let at = queue.iter().position(|entry| !entry.unanswered).unwrap_or(0);
        queue.remove(at)
    }

    pub(super) fn has_ready(&self, destination: DestinationId) -> bool {
        self.ready.get(destination).is_some_and(|queue| !queue.is_empty())
    }

    fn push_ready(&mut self, entry: Entry) {
        let destination = entry.destination;
        if self.ready.len() <= destination {
            self.ready.resize_with(destination + 1, VecDeque::new);
        }
        // What got no answer goes out before the others, whose answers tell whether it is at fault.
        if entry.unanswered {
            self.ready[destination].push_front(entry);
        } else {
            self.ready[destination].push_back(entry);
        }
    }

    /// What became of a batch, in its order.
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
                Resolution::Delivered if entry.is_parked() => {
                    self.settling.settlement.published_parked.push(entry.to_parked());
                }
                Resolution::Delivered => self.settling.settlement.published.push(entry.event.seq),
                Resolution::Retry { failure, retry_in } => {
                    self.blocked.insert(entry.key);
                    failed.push(entry.key);
                    joins = true;
                    let attempts = entry.event.attempts + 1;
                    self.settling.settlement.failed.push(Failed {
                        parked: entry.to_parked(),
                        attempts,
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
        // An ordered batch has a key several times; each key moves on once.
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.advance(key);
        }
    }

    /// Everything that is to be written down now.
    pub(super) fn take_settling(&mut self) -> Option<Settling> {
        for entry in self.to_hold.drain(..) {
            self.settling.settlement.held.push(entry.to_parked());
            self.settling.receipts.push(entry.receipt(true));
        }
        (!self.settling.settlement.is_empty()).then(|| std::mem::take(&mut self.settling))
    }

    /// How many results wait to be written down.
    pub(super) fn unsettled(&self) -> usize {
        self.settling.settlement.len() + self.to_hold.len()
    }

    /// The store has written a settlement; `free` are the keys that have nothing failing or held left.
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

    /// The key is free: what was to be held behind it goes on instead, still in order, as all before it is settled.
    fn unblock(&mut self, key: KeyId) {
        // It failed again while the settlement was being written. That failure is not written yet: the key stays blocked.
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
            self.enqueue(entry);
        }
    }

    fn enqueue(&mut self, entry: Entry) {
        match self.keys.get_mut(&entry.key) {
            Some(waiting) => waiting.push_back(entry),
            None if self.aside.is_closed(entry.sink) || self.aside.has(entry.key) => self.put_aside(entry),
            None => {
                self.keys.insert(entry.key, VecDeque::new());
                self.push_ready(entry);
            }
        }
    }

    /// A failed event's followers go into the side table; those that came from there only leave the window.
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
            Some(next) if self.aside.is_closed(next.sink) => {
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
