//! Settling in the store in memory: the same steps as in the statements of the real stores, in the same
//! order.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::world::{ParkedRow, Row, Status, World};
use pillarbox_relay::store::{HeldLane, Settled, StoreError};
use pillarbox_relay::{
    dead::SUPERSEDED,
    event::{Lane, Seq},
    route::AfterDeath,
    settlement::{DeadReason, Parked, Settlement},
};

type Keys = BTreeSet<(Lane, String)>;

impl World {
    pub(super) fn settle(
        &mut self,
        held: &[HeldLane],
        settlement: &Settlement,
    ) -> Result<Settled, StoreError> {
        if settlement.is_empty() {
            return Ok(Settled { free: Vec::new() });
        }
        self.fence(held, settlement)?;
        let mut touched = keys(settlement);
        let parked = settlement.published_parked.iter().map(|parked| parked.seq);
        for seq in settlement.published.iter().copied().chain(parked) {
            self.mark(seq, Status::Published);
            touched.extend(self.unpark(seq));
        }
        for failed in &settlement.failed {
            if let Some(row) = self.mark(failed.parked.seq, Status::Failed) {
                row.stored.attempts = failed.attempts;
                row.last_error = Some(failed.failure.error.clone());
                self.park(&failed.parked, Some(Instant::now() + failed.retry_in), false);
            }
        }
        for parked in &settlement.held {
            if self.mark(parked.seq, Status::Held).is_some() {
                self.park(parked, None, false);
            }
        }
        for delayed in &settlement.delayed {
            if self.mark(delayed.parked.seq, Status::Delayed).is_some() {
                let wait = delayed.available_at.duration_since((self.clock)());
                let due_at = Instant::now() + wait.try_into().unwrap_or_default();
                self.park(&delayed.parked, Some(due_at), true);
            }
        }
        for dead in &settlement.dead {
            if let Some(row) = self.mark(dead.seq, Status::Dead) {
                row.stored.attempts = dead.attempts;
                row.last_error = Some(dead.failure.error.clone());
                row.dead_reason = Some(dead.reason);
            }
            // A row that could not be read dies without its key: the side table knows the key.
            touched.extend(self.unpark(dead.seq));
            match dead.after {
                AfterDeath::Skip => {}
                AfterDeath::Block => self.block(dead.seq),
                AfterDeath::Latest => self.supersede(dead.seq),
            }
        }
        Ok(Settled {
            free: self.release(touched),
        })
    }

    /// Refuses a settlement if a given lane has a new epoch, or if an event belongs to a lane that was not
    /// given.
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
        .chain(settlement.dead.iter().map(|dead| dead.lane))
        .chain(held.iter().map(|held| held.lane));
        if lanes.into_iter().all(|lane| valid[usize::from(lane)]) {
            Ok(())
        } else {
            Err(StoreError::fenced())
        }
    }

    /// The row with its new status; `None` for a row that is published or dead, which never changes.
    fn mark(&mut self, seq: Seq, status: Status) -> Option<&mut Row> {
        let row = self.rows.get_mut(&seq)?;
        if matches!(row.status, Status::Published | Status::Dead) {
            return None;
        }
        row.status = status;
        Some(row)
    }

    fn park(&mut self, parked: &Parked, due_at: Option<Instant>, delayed: bool) {
        let row = ParkedRow {
            lane: parked.lane,
            key: parked.key.clone(),
            due_at,
            delayed,
            blocked: false,
        };
        self.parked.insert(parked.seq, row);
    }

    /// The dead event blocks its key.
    fn block(&mut self, seq: Seq) {
        let Some(row) = self.rows.get(&seq).filter(|row| row.status == Status::Dead) else {
            return;
        };
        let blocked = ParkedRow {
            lane: row.stored.lane,
            key: row.stored.event.key().to_owned(),
            due_at: None,
            delayed: false,
            blocked: true,
        };
        self.parked.insert(seq, blocked);
    }

    /// Of the events that wait behind a dead event and have its topic, only the newest is kept.
    fn supersede(&mut self, seq: Seq) {
        let Some(died) = self.rows.get(&seq).map(|row| row.stored.clone()) else {
            return;
        };
        let waiting = self.parked.range(seq + 1..).filter(|(behind, row)| {
            let same = row.lane == died.lane && row.key == died.event.key();
            same && !row.delayed && !row.blocked && self.rows[behind].stored.event.topic == died.event.topic
        });
        let mut older: Vec<Seq> = waiting.map(|(seq, _)| *seq).collect();
        older.pop();
        for seq in older {
            self.parked.remove(&seq);
            if let Some(row) = self.mark(seq, Status::Dead) {
                row.last_error = Some(SUPERSEDED.to_owned());
                row.dead_reason = Some(DeadReason::PermanentFailure);
            }
        }
    }

    /// What happens to a blocking event when somebody discards its letter.
    pub(super) fn discard(&mut self, seq: Seq) {
        if self.parked.get(&seq).is_some_and(|row| row.blocked) {
            let key = self.unpark(seq);
            self.release(key.into_iter().collect());
        }
    }

    /// Removes an event from the side table and returns its key.
    fn unpark(&mut self, seq: Seq) -> Option<(Lane, String)> {
        self.parked.remove(&seq).map(|row| (row.lane, row.key))
    }

    /// Restores the order of keys: the first event of each key that is not delayed is due, at its time or at
    /// once, and the others wait for it. A blocking dead event is never due. Returns the keys that have no such event.
    fn release(&mut self, touched: Keys) -> Vec<(Lane, String)> {
        let mut free = Vec::new();
        for (lane, key) in touched {
            let mut of_key = self
                .parked
                .values_mut()
                .filter(|row| row.lane == lane && row.key == key && !row.delayed);
            match of_key.next() {
                Some(first) => {
                    if !first.blocked {
                        first.due_at.get_or_insert_with(Instant::now);
                    }
                    of_key.for_each(|behind| behind.due_at = None);
                }
                None => free.push((lane, key)),
            }
        }
        free
    }
}

/// The keys whose order a settlement may affect, as far as the settlement contains them.
fn keys(settlement: &Settlement) -> Keys {
    let parked = settlement.published_parked.iter().chain(&settlement.held);
    let dead = settlement.dead.iter();
    parked
        .chain(settlement.failed.iter().map(|failed| &failed.parked))
        .map(|parked| (parked.lane, parked.key.clone()))
        .chain(dead.filter_map(|dead| Some((dead.lane, dead.key.clone()?))))
        .collect()
}
