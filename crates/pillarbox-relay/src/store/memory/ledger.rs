//! Settling and the side table of the store in memory.

use std::collections::{BTreeMap, HashSet};

use pillarbox::lane::key_hash;
use tokio::time::Instant;

use super::{
    super::{Due, DueEvent, HeldLane, PageLimit, Settled, StoreError},
    world::{ParkedRow, Status, World, lane_set, readable},
};
use crate::{
    event::{Lane, Seq},
    settlement::{Parked, Settlement},
};

impl World {
    pub(super) fn settle(
        &mut self,
        held: &[HeldLane],
        settlement: &Settlement,
    ) -> Result<Settled, StoreError> {
        self.fence(held, settlement)?;
        let mut touched: Vec<(Lane, String)> = Vec::new();
        for &seq in &settlement.published {
            self.publish(seq);
        }
        for parked in &settlement.published_parked {
            self.publish(parked.seq);
            self.parked.remove(&parked.seq);
            touched.push((parked.lane, parked.key.clone()));
        }
        for failed in &settlement.failed {
            self.set(
                failed.parked.seq,
                Status::Failed,
                failed.attempts,
                Some(&failed.failure.error),
            );
            self.park(&failed.parked, Some(Instant::now() + failed.retry_in), false);
        }
        for parked in &settlement.held {
            if let Some(row) = self.rows.get_mut(&parked.seq) {
                row.status = Status::Held;
            }
            self.park(parked, None, false);
        }
        for delayed in &settlement.delayed {
            let wait = delayed.available_at.duration_since(jiff::Timestamp::now());
            let due_at = Instant::now() + wait.try_into().unwrap_or_default();
            self.park(&delayed.parked, Some(due_at), true);
        }
        for dead in &settlement.dead {
            self.set(dead.seq, Status::Dead, dead.attempts, Some(&dead.failure.error));
            self.parked.remove(&dead.seq);
            touched.extend(dead.key.clone().map(|key| (dead.lane, key)));
        }
        Ok(Settled {
            free: self.free_or_next_due(touched),
        })
    }

    /// What is free of the keys given; the first of what remains of the others is due at once.
    fn free_or_next_due(&mut self, touched: Vec<(Lane, String)>) -> Vec<(Lane, String)> {
        let mut free = Vec::new();
        for (lane, key) in touched {
            let mut of_key = self
                .parked
                .values_mut()
                .filter(|row| row.lane == lane && row.key == key && !row.delayed);
            match of_key.next() {
                None => free.push((lane, key)),
                Some(first) => {
                    first.due_at.get_or_insert_with(Instant::now);
                }
            }
        }
        free
    }

    /// Refuses a settlement with an event of a lane that has moved on.
    fn fence(&self, held: &[HeldLane], settlement: &Settlement) -> Result<(), StoreError> {
        let valid = self.still_held(held);
        let parked = settlement
            .published_parked
            .iter()
            .chain(&settlement.held)
            .map(|parked| parked.lane);
        let lanes = (settlement
            .published
            .iter()
            .filter_map(|seq| self.rows.get(seq))
            .map(|row| row.stored.lane))
        .chain(parked)
        .chain(settlement.failed.iter().map(|failed| failed.parked.lane))
        .chain(settlement.delayed.iter().map(|delayed| delayed.parked.lane))
        .chain(settlement.dead.iter().map(|dead| dead.lane));
        if lanes.into_iter().all(|lane| valid[usize::from(lane)]) {
            Ok(())
        } else {
            Err(StoreError::fenced())
        }
    }

    fn publish(&mut self, seq: Seq) {
        if let Some(row) = self
            .rows
            .get_mut(&seq)
            .filter(|row| row.status != Status::Published)
        {
            row.status = Status::Published;
        }
    }

    fn set(&mut self, seq: Seq, status: Status, attempts: u32, error: Option<&String>) {
        if let Some(row) = self.rows.get_mut(&seq) {
            row.status = status;
            row.stored.attempts = attempts;
            row.last_error = error.cloned();
        }
    }

    fn park(&mut self, parked: &Parked, due_at: Option<Instant>, delayed: bool) {
        let row = ParkedRow {
            lane: parked.lane,
            key: parked.key.clone(),
            due_at,
            delayed,
        };
        self.parked.insert(parked.seq, row);
    }

    pub(super) fn due(&self, held: &[HeldLane], limit: PageLimit) -> Due {
        let now = Instant::now();
        let lanes = lane_set(held.iter().map(|held| held.lane));
        let mine = || self.parked.iter().filter(|(_, row)| lanes[usize::from(row.lane)]);
        let mut keys: BTreeMap<(Lane, &str), Vec<(Seq, bool)>> = BTreeMap::new();
        for (_, head) in mine().filter(|(_, row)| !row.delayed && row.due_at.is_some_and(|due| due <= now)) {
            let of_key =
                mine().filter(|(_, row)| !row.delayed && row.lane == head.lane && row.key == head.key);
            keys.insert(
                (head.lane, &head.key),
                of_key.map(|(seq, _)| (*seq, false)).collect(),
            );
        }
        let delayed = mine().filter(|(_, row)| row.delayed && row.due_at.is_some_and(|due| due <= now));
        let events = keys
            .into_values()
            .flatten()
            .chain(delayed.map(|(seq, _)| (*seq, true)))
            .take(limit.events);
        let mut due = Due::default();
        for (seq, delayed) in events {
            let stored = &self.rows[&seq].stored;
            match readable(stored, limit) {
                Ok(()) => due.events.push(DueEvent {
                    event: stored.clone(),
                    delayed,
                }),
                Err(row) => due.unreadable.push(row),
            }
        }
        let next = mine()
            .filter_map(|(_, row)| row.due_at)
            .filter(|at| *at > now)
            .min();
        Due {
            next: next.map(|at| at - now),
            ..due
        }
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
