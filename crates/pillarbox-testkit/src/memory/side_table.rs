//! The side table of the store in memory: what may be tried now, and which keys wait.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use pillarbox::lane::key_hash;
use tokio::time::Instant;

use super::world::{ParkedRow, World, lane_set, readable};
use pillarbox_relay::event::{Lane, Seq};
use pillarbox_relay::store::{Due, DueEvent, DuePlace, HeldLane, PageLimit};

/// What is returned for a key: its failing event, or else one delayed event.
struct First {
    due_at: Instant,
    seq: Seq,
    delayed: bool,
}

impl World {
    pub(super) fn due(&self, held: &[HeldLane], after: Option<DuePlace>, limit: PageLimit) -> Due {
        let now = Instant::now();
        let lanes = lane_set(held.iter().map(|held| held.lane));
        let mine = || self.parked.iter().filter(|(_, row)| lanes[usize::from(row.lane)]);
        let ready = mine().filter_map(|(seq, row)| Some((*seq, row, row.due_at.filter(|at| *at <= now)?)));
        let mut firsts: BTreeMap<(Lane, &str), First> = BTreeMap::new();
        for (seq, row, due_at) in ready {
            let new = First {
                due_at,
                seq,
                delayed: row.delayed,
            };
            firsts
                .entry((row.lane, &row.key))
                .and_modify(|first| {
                    first.due_at = first.due_at.min(due_at);
                    if first.delayed && !row.delayed {
                        (first.seq, first.delayed) = (seq, false);
                    }
                })
                .or_insert(new);
        }
        let mut firsts: Vec<_> = firsts.into_iter().collect();
        firsts.sort_by_key(|(_, first)| (first.due_at, first.seq));
        firsts.retain(|(_, first)| {
            let place = self.place(first);
            after.is_none_or(|after| (place.due_at, place.seq) > (after.due_at, after.seq))
        });
        let candidates: Vec<(Seq, bool)> = firsts
            .iter()
            .flat_map(|((lane, key), first)| self.members(*lane, key, first))
            .collect();

        let (mut due, taken) = self.fill(&candidates, limit);
        let next = mine()
            .filter_map(|(_, row)| row.due_at)
            .filter(|at| *at > now)
            .min();
        due.next = match taken < candidates.len() {
            true => Some(Duration::ZERO),
            false => next.map(|at| at - now),
        };
        due.more_after = (taken < candidates.len())
            .then(|| self.last_place(&firsts, taken))
            .flatten();
        due
    }

    fn place(&self, first: &First) -> DuePlace {
        DuePlace {
            due_at: i64::try_from((first.due_at - self.epoch).as_micros()).unwrap_or(i64::MAX),
            seq: first.seq,
        }
    }

    /// The place of the key to which the last of so many events belongs.
    fn last_place(&self, firsts: &[((Lane, &str), First)], taken: usize) -> Option<DuePlace> {
        let mut count = 0;
        let last = firsts.iter().find(|((lane, key), first)| {
            count += self.members(*lane, key, first).len();
            count >= taken
        });
        last.map(|(_, first)| self.place(first))
    }

    /// A failing event with the events held behind it, or a delayed one alone; by seq.
    fn members(&self, lane: Lane, key: &str, first: &First) -> Vec<(Seq, bool)> {
        if first.delayed {
            return vec![(first.seq, true)];
        }
        let of_key = |row: &ParkedRow| row.lane == lane && row.key == key && !row.delayed;
        self.parked
            .range(first.seq..)
            .filter(|(_, row)| of_key(row))
            // Nothing behind a blocking event is sent.
            .take_while(|(_, row)| !row.blocked)
            .map(|(seq, _)| (*seq, false))
            .collect()
    }

    /// As many of these as the limit allows, and their number.
    fn fill(&self, candidates: &[(Seq, bool)], limit: PageLimit) -> (Due, usize) {
        let mut due = Due::default();
        let mut bytes = 0;
        for (taken, (seq, delayed)) in candidates.iter().enumerate() {
            let stored = &self.rows[seq].stored;
            let fits = stored.event.payload.len() <= limit.payload_bytes_max;
            bytes += if fits { stored.event.payload.len() } else { 0 };
            if taken == limit.events || (bytes > limit.bytes && !due.events.is_empty()) {
                return (due, taken);
            }
            match readable(stored, limit) {
                Ok(()) => due.events.push(DueEvent {
                    event: stored.clone(),
                    delayed: *delayed,
                }),
                Err(row) => due.unreadable.push(row),
            }
        }
        (due, candidates.len())
    }

    pub(super) fn blocked_keys(&self, lanes: &[HeldLane]) -> Vec<(Lane, u64)> {
        let lanes = lane_set(lanes.iter().map(|held| held.lane));
        let blocked = self
            .parked
            .values()
            .filter(|row| lanes[usize::from(row.lane)] && !row.delayed);
        blocked
            .map(|row| (row.lane, key_hash(&row.key)))
            .collect::<HashSet<_>>()
            .into_iter()
            .collect()
    }
}
