//! A store in memory, only for the simulation of the engine: its data ends with the process.
//!
//! It fulfils the contract like a database: transactions take their seqs when they write, and may commit in
//! any order, much later, or never. It uses tokio's time, so that a simulation can advance it.

mod admin;
mod log;
mod records;
mod settle;
mod side_table;
mod versions;
mod world;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::gate::Gate;
use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{EnqueueError, Enqueued, Event, Limits, lane::LANES};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::world::{Marks, Transaction, World};
pub use self::{
    log::MemoryLog,
    world::{Row, Status},
};
use pillarbox_relay::store::{
    Census, Due, DuePlace, HeldLane, Page, PageLimit, Reader, RelayId, Settled, Store, StoreError,
    StoreErrorKind, Trouble, trouble,
};
use pillarbox_relay::{
    event::{Lane, Seq},
    settlement::Settlement,
};

/// Clones share one world.
#[derive(Clone, Default)]
pub struct MemoryStore {
    world: Arc<Mutex<World>>,
    statements: Arc<AtomicU64>,
    answering: Gate,
    loss: Arc<Mutex<Loss>>,
}

/// The probability that the answer to a call is lost.
struct Loss {
    share: f64,
    rng: StdRng,
}

impl Default for Loss {
    fn default() -> Self {
        Self {
            share: 0.0,
            rng: StdRng::seed_from_u64(1),
        }
    }
}

/// A transaction of an application. Dropping it rolls back.
pub struct MemoryTransaction {
    world: Arc<Mutex<World>>,
    id: Option<Transaction>,
}

impl MemoryStore {
    pub fn begin(&self) -> MemoryTransaction {
        let id = Some(self.lock().begin());
        MemoryTransaction {
            world: self.world.clone(),
            id,
        }
    }

    /// Away: every call fails until it is back.
    pub fn set_away(&self, away: bool) {
        self.lock().away = away;
    }

    /// A store with this time of day.
    pub fn with_clock(clock: fn() -> Timestamp) -> Self {
        let store = Self::default();
        store.lock().clock = clock;
        store
    }

    /// This share of the calls is executed and still fails: the answer is lost.
    pub fn set_loss(&self, share: f64) {
        self.loss.lock().unwrap_or_else(PoisonError::into_inner).share = share;
    }

    /// Stalled: every call waits, as on a silent connection.
    pub fn set_stalled(&self, stalled: bool) {
        self.answering.set(!stalled);
    }

    /// Every committed row, by seq.
    pub fn rows(&self) -> Vec<Row> {
        self.lock().rows()
    }

    /// The dead events that block their keys, by seq.
    pub fn blocking(&self) -> Vec<Seq> {
        let world = self.lock();
        let blocked = world.parked.iter().filter(|(_, row)| row.blocked);
        blocked.map(|(seq, _)| *seq).collect()
    }

    /// Somebody resolved a dead event: its key continues.
    pub fn discard(&self, seq: Seq) {
        self.lock().discard(seq);
    }

    /// Makes a stored payload unreadable.
    pub fn corrupt(&self, seq: Seq) {
        self.lock().corrupt(seq);
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world, for one call: counted, and refused while away.
    async fn call(&self) -> Result<MutexGuard<'_, World>, StoreError> {
        self.answering.pass().await;
        self.statements.fetch_add(1, Ordering::Relaxed);
        let world = self.lock();
        if world.away {
            return Err(StoreError::new(
                StoreErrorKind::Away,
                "the store in memory is away",
            ));
        }
        Ok(world)
    }
}

impl MemoryStore {
    /// The answer of an executed call, unless it gets lost.
    fn answer<T>(&self, answer: T) -> Result<T, StoreError> {
        let Loss { share, rng } = &mut *self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        if *share > 0.0 && rng.random_bool(*share) {
            return Err(StoreError::new(StoreErrorKind::Away, "the answer is lost"));
        }
        Ok(answer)
    }
}

impl MemoryTransaction {
    /// Returns whether the event was new.
    pub fn enqueue(&mut self, event: Event) -> bool {
        let Some(id) = self.id else { return false };
        self.world
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, event)
    }

    /// As a producer writes them: checked first, then all are written, or none if one is refused.
    pub fn enqueue_all(&mut self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let now = (self.world.lock().unwrap_or_else(PoisonError::into_inner).clock)();
        for (index, event) in events.iter().enumerate() {
            limits
                .check_new(event, now)
                .map_err(|problem| EnqueueError::Refused { index, problem })?;
        }
        let write = |event: &Event| match self.enqueue(event.clone()) {
            true => Enqueued::New,
            false => Enqueued::Duplicate,
        };
        Ok(events.iter().map(write).collect())
    }

    pub fn commit(mut self) {
        if let Some(id) = self.id.take() {
            self.world
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .commit(id);
        }
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.world
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .roll_back(id);
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.call().await.map(drop)
    }

    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        let census = self.call().await?.heartbeat(relay, name, ttl, held);
        self.answer(census)
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        let taken = self.call().await?.take_lanes(relay, count, ttl);
        self.answer(taken)
    }

    async fn release_lanes(&self, _relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError> {
        self.call().await?.release_lanes(lanes);
        self.answer(())
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        self.call().await?.leave(relay);
        self.answer(())
    }

    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader> {
        let mut marks = [None; LANES as usize];
        lanes
            .iter()
            .for_each(|held| marks[usize::from(held.lane)] = Some(held.low_mark));
        Box::new(MemoryReader {
            store: self.clone(),
            marks,
            position: None,
            page: Vec::new(),
            caught_up: false,
        })
    }

    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        let settled = self.call().await?.settle(held, settlement)?;
        self.answer(settled)
    }

    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        let due = self.call().await?.due(held, after, limit);
        self.answer(due)
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        if let Some(row) = self.call().await?.relays.get_mut(&relay) {
            row.troubles = trouble::kept(troubles);
        }
        Ok(())
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        let world = self.call().await?;
        Ok(world
            .relays
            .values()
            .flat_map(|relay| relay.troubles.clone())
            .collect())
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        Ok(self.call().await?.blocked_keys(lanes))
    }

    fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }
}

/// Reads in the order of commits; the events of each read are in the order of seq.
struct MemoryReader {
    store: MemoryStore,
    /// The low marks of its lanes.
    marks: Marks,
    /// How many commits have been read; `None` before the first read.
    position: Option<usize>,
    /// Events of the commits already read that are not returned yet, by seq.
    page: Vec<Seq>,
    /// Everything that existed when the reader was opened has been returned.
    caught_up: bool,
}

#[async_trait]
impl Reader for MemoryReader {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        let world = self.store.call().await?;
        if self.page.is_empty() {
            let (seqs, position) = world.pending_since(self.position, &self.marks);
            self.page = seqs;
            self.position = Some(position);
        }
        let (page, taken) = world.page(&self.page, limit);
        self.page.drain(..taken);
        let undelivered = self.page.first().copied();
        let more = !self.page.is_empty();
        self.caught_up |= !more;
        Ok(Page {
            reached: match undelivered {
                Some(seq) if !self.caught_up => seq - 1,
                _ => Seq::MAX,
            },
            decided: world.decided(self.position.unwrap_or(0), undelivered, &self.marks),
            more,
            ..page
        })
    }
}
