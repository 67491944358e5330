//! `claim: rows`: relays lock the events themselves, as services with such a collection do.
//!
//! A relay finds events that are pending, failed and due again, or locked by a relay that has not renewed its locks
//! for a minute. It marks them as `processing` with `locked_by` and `locked_until`, and reads those that it got.
//! Two relays never both get the same event. There are no lanes and no side table: a failed event waits in its
//! place with `retry_at`, and the other events of its key continue. So **no order is kept beyond a batch**.

mod claim;
mod settle;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mongodb::{
    bson::{Document, doc},
    options::Hint,
};
use tokio::time::Instant;

use self::claim::RowsReader;
use super::{MongoStore, connection::Connection, document::timestamps, milliseconds, schema};
use crate::{
    event::{Lane, Seq},
    settlement::Settlement,
    store::{
        Census, Due, DuePlace, HeldLane, PageLimit, Reader, RelayId, Settled, Store, StoreError, Trouble,
        Waker,
    },
};

/// How long an event stays locked without a renewal.
const LOCK: Duration = Duration::from_secs(60);
/// How often a relay renews its locks.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Far below the size limit of a command.
const RENEW_AT_ONCE: usize = 10_000;
/// A MongoDB outbox whose relays claim rows.
pub struct RowsStore {
    store: Arc<MongoStore>,
    shared: Arc<Shared>,
}

/// State shared by the readers and the heartbeat.
struct Shared {
    relay: Mutex<Option<RelayId>>,
    renewed_at: Mutex<Option<Instant>>,
    /// Events that the readers returned and that are not settled yet. Only these locks are renewed: if the update
    /// of a claim arrives after its reader gave up, no reader knows about it, so it must expire.
    claimed: Mutex<HashSet<Seq>>,
    /// Something was committed: read again at once.
    woken: AtomicBool,
}

impl Shared {
    /// The value of `locked_by`.
    fn name(&self) -> String {
        let relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner);
        relay.unwrap_or_default().to_string()
    }

    fn claimed(&self) -> MutexGuard<'_, HashSet<Seq>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self, settlement: &Settlement) {
        let parked = settlement.published_parked.iter().chain(&settlement.held);
        let failed = settlement.failed.iter().map(|failed| failed.parked.seq);
        let delayed = settlement.delayed.iter().map(|delayed| delayed.parked.seq);
        let dead = settlement.dead.iter().map(|dead| dead.seq);
        let mut claimed = self.claimed();
        for seq in settlement
            .published
            .iter()
            .copied()
            .chain(failed)
            .chain(delayed)
            .chain(dead)
        {
            claimed.remove(&seq);
        }
        for parked in parked {
            claimed.remove(&parked.seq);
        }
    }
}

impl RowsStore {
    pub fn new(store: Arc<MongoStore>) -> Self {
        Self {
            store,
            shared: Arc::new(Shared {
                relay: Mutex::default(),
                renewed_at: Mutex::default(),
                claimed: Mutex::default(),
                woken: AtomicBool::new(false),
            }),
        }
    }

    /// Renews the locks of the events that this relay knows about.
    async fn renew(&self, connection: &Connection) -> Result<(), StoreError> {
        let due = {
            let mut renewed_at = self
                .shared
                .renewed_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let due = renewed_at.is_none_or(|at| at.elapsed() >= RENEW_EVERY);
            if due {
                *renewed_at = Some(Instant::now());
            }
            due
        };
        if !due {
            return Ok(());
        }
        let at = connection.collections().await?;
        let until = doc! { "$set": { "locked_until": { "$add": ["$$NOW", milliseconds(LOCK)] } } };
        let claimed: Vec<Seq> = self.shared.claimed().iter().copied().collect();
        for some in claimed.chunks(RENEW_AT_ONCE) {
            let mut mine = locked(&self.shared.name());
            mine.insert("seq", doc! { "$in": timestamps(some.iter().copied()) });
            let renew = at
                .events
                .update_many(mine, vec![until.clone()])
                .hint(Hint::Name("seq".into()));
            connection.run(renew).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Store for RowsStore {
    async fn check(&self) -> Result<(), StoreError> {
        schema::check(&self.store.connection).await
    }

    /// Every relay holds every lane: the events themselves are locked.
    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        *self.shared.relay.lock().unwrap_or_else(PoisonError::into_inner) = Some(relay);
        self.store.heartbeat(relay, name, ttl, &[]).await?;
        self.renew(&self.store.connection).await?;
        Ok(Census {
            relays: 1,
            rank: 0,
            held: held.iter().map(|held| held.lane).collect(),
        })
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        _ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        *self.shared.relay.lock().unwrap_or_else(PoisonError::into_inner) = Some(relay);
        let lanes = (0..=Lane::MAX).take(count).map(|lane| HeldLane {
            lane,
            epoch: 1,
            low_mark: 0,
        });
        Ok(lanes.collect())
    }

    async fn release_lanes(&self, _relay: RelayId, _lanes: &[HeldLane]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        unlock(&self.store.connection, &relay.to_string()).await?;
        self.store.leave(relay).await
    }

    fn reader(&self, _lanes: &[HeldLane]) -> Box<dyn Reader> {
        Box::new(RowsReader::new(
            self.store.connection.clone(),
            self.shared.clone(),
        ))
    }

    async fn settle(&self, _held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        let settled = settle::settle(&self.store.connection, settlement).await?;
        self.shared.settled(settlement);
        Ok(settled)
    }

    /// Waiting events are claimed like all others.
    async fn due(
        &self,
        _held: &[HeldLane],
        _after: Option<DuePlace>,
        _limit: PageLimit,
    ) -> Result<Due, StoreError> {
        Ok(Due::default())
    }

    async fn blocked_keys(&self, _lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        Ok(Vec::new())
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        self.store.report(relay, troubles).await
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        self.store.troubles().await
    }

    fn claims_rows(&self) -> bool {
        true
    }

    fn waker(&self) -> Option<&dyn Waker> {
        self.store.wakening.listens().then_some(self)
    }

    fn statements(&self) -> u64 {
        self.store.statements()
    }
}

#[async_trait]
impl Waker for RowsStore {
    async fn wait(&self, at_most: Duration) {
        if self.store.wakening.wait(at_most).await {
            self.shared.woken.store(true, Ordering::Relaxed);
        }
    }

    async fn set_asleep(&self, asleep: bool) -> Result<(), StoreError> {
        self.store.set_asleep(asleep).await
    }
}

fn locked(by: &str) -> Document {
    doc! { "status": "processing", "locked_by": by }
}

/// Releases events, so that any relay can claim them.
fn give_back() -> Document {
    doc! { "$set": { "status": "pending" }, "$unset": { "locked_by": "", "locked_until": "", "processing_started_at": "" } }
}

async fn unlock(connection: &Connection, relay: &str) -> Result<(), StoreError> {
    let at = connection.collections().await?;
    let unlock = at
        .events
        .update_many(locked(relay), give_back())
        .hint(Hint::Name("locked_until".into()));
    connection.run(unlock).await.map(drop)
}
