//! The data of the store in memory: rows, open transactions, lanes and relays.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use pillarbox::{Event, EventId, Limits, lane::LANES, lane::lane_of};
use tokio::time::Instant;

use pillarbox_relay::store::{Census, HeldLane, Page, PageLimit, RelayId, Trouble};
use pillarbox_relay::{
    event::{Lane, Seq, StoredEvent, Unreadable},
    settlement::DeadReason,
};

pub(super) type Transaction = u64;

/// The low mark of each lane that is read.
pub(super) type Marks = [Option<Seq>; LANES as usize];

/// One stored event.
#[derive(Debug, Clone)]
pub struct Row {
    pub stored: StoredEvent,
    pub status: Status,
    pub last_error: Option<String>,
    pub dead_reason: Option<DeadReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Pending,
    Failed,
    Held,
    Delayed,
    Published,
    Dead,
}

/// An event in the side table.
pub(super) struct ParkedRow {
    pub(super) lane: Lane,
    pub(super) key: String,
    pub(super) due_at: Option<Instant>,
    pub(super) delayed: bool,
    /// Dead, and its key waits until somebody replays or discards it.
    pub(super) blocked: bool,
}

#[derive(Default)]
pub(super) struct LaneRow {
    epoch: i64,
    pub(super) owner: Option<RelayId>,
    pub(super) until: Option<Instant>,
    low_mark: Seq,
}

pub(super) struct RelayRow {
    pub(super) name: String,
    pub(super) seen: Instant,
    pub(super) until: Instant,
    pub(super) troubles: Vec<Trouble>,
}

pub(super) struct World {
    /// When the world began: places in the side table count from here.
    pub(super) epoch: Instant,
    pub(super) clock: fn() -> Timestamp,
    pub(super) away: bool,
    pub(super) records: super::records::Rows,
    last_seq: Seq,
    ids: HashSet<EventId>,
    next_transaction: Transaction,
    open: HashMap<Transaction, Vec<(Seq, Event)>>,
    pub(super) rows: BTreeMap<Seq, Row>,
    /// Seqs in the order of their commits.
    commits: Vec<Seq>,
    pub(super) parked: BTreeMap<Seq, ParkedRow>,
    pub(super) lanes: HashMap<Lane, LaneRow>,
    pub(super) relays: BTreeMap<RelayId, RelayRow>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            clock: Timestamp::now,
            away: false,
            records: super::records::Rows::new(),
            last_seq: 0,
            ids: HashSet::new(),
            next_transaction: 0,
            open: HashMap::new(),
            rows: BTreeMap::new(),
            commits: Vec::new(),
            parked: BTreeMap::new(),
            lanes: HashMap::new(),
            relays: BTreeMap::new(),
        }
    }
}

impl World {
    pub(super) fn begin(&mut self) -> Transaction {
        self.next_transaction += 1;
        self.open.insert(self.next_transaction, Vec::new());
        self.next_transaction
    }

    pub(super) fn insert(&mut self, transaction: Transaction, event: Event) -> bool {
        if !self.ids.insert(event.id.clone()) {
            return false;
        }
        self.last_seq += 1;
        self.open
            .entry(transaction)
            .or_default()
            .push((self.last_seq, event));
        true
    }

    pub(super) fn commit(&mut self, transaction: Transaction) {
        for (seq, event) in self.open.remove(&transaction).unwrap_or_default() {
            let lane = lane_of(event.key());
            let stored = StoredEvent {
                seq,
                lane,
                attempts: 0,
                created_at: (self.clock)(),
                event,
            };
            self.rows.insert(
                seq,
                Row {
                    stored,
                    status: Status::Pending,
                    last_error: None,
                    dead_reason: None,
                },
            );
            self.commits.push(seq);
        }
    }

    pub(super) fn roll_back(&mut self, transaction: Transaction) {
        for (_, event) in self.open.remove(&transaction).unwrap_or_default() {
            self.ids.remove(&event.id);
        }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.rows.values().cloned().collect()
    }

    pub(super) fn corrupt(&mut self, seq: Seq) {
        if let Some(row) = self.rows.get_mut(&seq) {
            row.stored.event.payload = Bytes::from_static(b"{not json");
        }
    }

    /// The pending rows of these lanes among the commits after `position` (before the first read: all above
    /// the low mark), by seq; and the position after them.
    pub(super) fn pending_since(&self, position: Option<usize>, marks: &Marks) -> (Vec<Seq>, usize) {
        let mut seqs: Vec<Seq> = self.commits[position.unwrap_or(0)..]
            .iter()
            .copied()
            .filter(|seq| {
                let row = &self.rows[seq];
                row.status == Status::Pending
                    && !self.parked.contains_key(seq)
                    && marks[usize::from(row.stored.lane)].is_some_and(|mark| *seq > mark)
            })
            .collect();
        seqs.sort_unstable();
        (seqs, self.commits.len())
    }

    /// The first of these rows, as many as the limit allows, and their number.
    pub(super) fn page(&self, seqs: &[Seq], limit: PageLimit) -> (Page, usize) {
        let mut page = Page::default();
        let mut bytes = 0;
        for (taken, seq) in seqs.iter().enumerate() {
            let stored = &self.rows[seq].stored;
            let headers = stored.event.headers.iter();
            bytes += stored.event.payload.len()
                + headers
                    .map(|(name, value)| name.len() + value.len())
                    .sum::<usize>();
            if taken == limit.events || (taken > 0 && bytes > limit.bytes) {
                return (page, taken);
            }
            match readable(stored, limit) {
                Ok(()) => page.events.push(stored.clone()),
                Err(row) => page.unreadable.push(row),
            }
        }
        (page, seqs.len())
    }

    /// No open transaction, no unread commit and nothing undelivered is at or below the returned seq.
    pub(super) fn decided(&self, position: usize, undelivered: Option<Seq>, marks: &Marks) -> Seq {
        let open = self.open.values().flatten().map(|(seq, _)| *seq);
        let is_read = |seq: &Seq| marks[usize::from(self.rows[seq].stored.lane)].is_some();
        let unread = self.commits[position..].iter().copied().filter(is_read);
        let first_undecided = open.chain(unread).chain(undelivered).min();
        first_undecided.map_or(self.last_seq, |seq| seq - 1)
    }

    pub(super) fn heartbeat(
        &mut self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Census {
        let now = Instant::now();
        let before = self.relays.remove(&relay);
        let row = RelayRow {
            name: name.to_owned(),
            seen: now,
            until: now + ttl,
            troubles: before.map(|row| row.troubles).unwrap_or_default(),
        };
        self.relays.insert(relay, row);
        self.relays.retain(|_, relay| relay.until > now);
        let mut renewed = Vec::new();
        for claim in held {
            let lane = self.lanes.entry(claim.lane).or_default();
            if lane.epoch == claim.epoch && lane.owner == Some(relay) {
                lane.until = Some(now + ttl);
                lane.low_mark = lane.low_mark.max(claim.low_mark);
                renewed.push(claim.lane);
            }
        }
        let rank = self.relays.keys().position(|id| *id == relay).unwrap_or(0);
        Census {
            relays: self.relays.len() as u16,
            rank: rank as u16,
            held: renewed,
        }
    }

    pub(super) fn take_lanes(&mut self, relay: RelayId, count: usize, ttl: Duration) -> Vec<HeldLane> {
        let now = Instant::now();
        let mut taken = Vec::new();
        for number in 0..LANES {
            let number = number as Lane;
            let lane = self.lanes.entry(number).or_default();
            if taken.len() < count && lane.until.is_none_or(|until| until <= now) {
                lane.epoch += 1;
                lane.owner = Some(relay);
                lane.until = Some(now + ttl);
                taken.push(HeldLane {
                    lane: number,
                    epoch: lane.epoch,
                    low_mark: lane.low_mark,
                });
            }
        }
        taken
    }

    pub(super) fn release_lanes(&mut self, lanes: &[HeldLane]) {
        for claim in lanes {
            let lane = self.lanes.entry(claim.lane).or_default();
            if lane.epoch == claim.epoch {
                lane.low_mark = lane.low_mark.max(claim.low_mark);
                lane.owner = None;
                lane.until = None;
            }
        }
    }

    /// The lanes whose epoch is still that of the claim.
    pub(super) fn still_held(&self, held: &[HeldLane]) -> [bool; LANES as usize] {
        let current = |claim: &&HeldLane| {
            self.lanes
                .get(&claim.lane)
                .is_some_and(|lane| lane.epoch == claim.epoch)
        };
        lane_set(held.iter().filter(current).map(|claim| claim.lane))
    }

    pub(super) fn leave(&mut self, relay: RelayId) {
        self.relays.remove(&relay);
        for lane in self.lanes.values_mut().filter(|lane| lane.owner == Some(relay)) {
            lane.owner = None;
            lane.until = None;
        }
    }
}

/// Which lanes are among these.
pub(super) fn lane_set(lanes: impl Iterator<Item = Lane>) -> [bool; LANES as usize] {
    let mut set = [false; LANES as usize];
    lanes.for_each(|lane| set[usize::from(lane)] = true);
    set
}

pub(super) fn readable(stored: &StoredEvent, limit: PageLimit) -> Result<(), Unreadable> {
    let limits = Limits::default().payload_bytes_max(limit.payload_bytes_max);
    limits
        .payload(&stored.event.payload)
        .map_err(|problem| Unreadable {
            seq: stored.seq,
            lane: stored.lane,
            problem: problem.to_string(),
            topic: Some(stored.event.topic.clone()),
            key: Some(stored.event.key().to_owned()),
        })
}
