//! `claim: rows`: relays lock the events themselves, as services with such a collection do it.
//!
//! A relay finds some events that are pending, failed and due again, or locked by one that was not heard of for a minute; it
//! marks them as `processing` with `locked_by` and `locked_until`, and reads those that became its own. Two relays that want the same
//! event never both get it. There are no lanes and no side table: a failed event waits in its place with `retry_at`,
//! and those of its key go on. So **no order is kept beyond a batch**.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mongodb::{
    bson::{Bson, Document, RawDocumentBuf, doc},
    options::Hint,
};
use tokio::time::Instant;

use super::{
    MongoStore,
    connection::Connection,
    document::{event, payload_bytes, timestamps},
    milliseconds,
    rows_settle::settle,
    schema,
};
use crate::{
    event::Lane,
    settlement::Settlement,
    store::{
        Capabilities, Census, Due, HeldLane, Page, PageLimit, Reader, RelayId, Settled, Store, StoreError,
    },
};

/// How long an event stays locked without a sign of life.
const LOCK: Duration = Duration::from_secs(60);
/// A relay that lives says so again.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Between two looks when nothing was found: twice as long each time, up to the longest.
const IDLE_MIN: Duration = Duration::from_millis(50);
const IDLE_MAX: Duration = Duration::from_secs(10);

/// A MongoDB outbox whose relays claim rows.
pub struct RowsStore {
    store: Arc<MongoStore>,
    shared: Arc<Shared>,
}

/// What the readers and the heartbeat know of each other.
struct Shared {
    relay: Mutex<Option<RelayId>>,
    renewed_at: Mutex<Option<Instant>>,
    /// Something was committed: look again at once.
    woken: AtomicBool,
}

impl Shared {
    /// As it stands in `locked_by`.
    fn name(&self) -> String {
        let relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner);
        relay.unwrap_or_default().to_string()
    }
}

impl RowsStore {
    pub fn new(store: Arc<MongoStore>) -> Self {
        Self {
            store,
            shared: Arc::new(Shared {
                relay: Mutex::default(),
                renewed_at: Mutex::default(),
                woken: AtomicBool::new(false),
            }),
        }
    }

    /// Locks of a relay that lives last.
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
        let renew = at
            .events
            .update_many(locked(&self.shared.name()), vec![until])
            .hint(Hint::Name("locked_until".into()));
        connection.run(renew).await.map(drop)
    }
}

#[async_trait]
impl Store for RowsStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            claims: true,
            ..self.store.capabilities()
        }
    }

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
        Box::new(RowsReader {
            connection: self.store.connection.clone(),
            shared: self.shared.clone(),
            first: true,
            idle: IDLE_MIN,
            look_at: Instant::now(),
        })
    }

    async fn settle(&self, _held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        settle(&self.store.connection, settlement).await
    }

    /// What waits is claimed like everything else.
    async fn due(&self, _held: &[HeldLane], _limit: PageLimit) -> Result<Due, StoreError> {
        Ok(Due::default())
    }

    async fn blocked_keys(&self, _lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError> {
        Ok(Vec::new())
    }

    async fn set_asleep(&self, asleep: bool) -> Result<(), StoreError> {
        self.store.set_asleep(asleep).await
    }

    async fn wait(&self, at_most: Duration) {
        if self.store.wakening.wait(at_most).await {
            self.shared.woken.store(true, Ordering::Relaxed);
        }
    }

    fn statements(&self) -> u64 {
        self.store.statements()
    }
}

struct RowsReader {
    connection: Arc<Connection>,
    shared: Arc<Shared>,
    first: bool,
    idle: Duration,
    look_at: Instant,
}

#[async_trait]
impl Reader for RowsReader {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        let me = self.shared.name();
        if std::mem::take(&mut self.first) {
            // What an earlier reader of this relay has left.
            unlock(&self.connection, &me).await?;
        }
        let woken = self.shared.woken.swap(false, Ordering::Relaxed);
        if !woken && Instant::now() < self.look_at {
            return Ok(Page::default());
        }
        let ids = self.candidates(limit.events.max(1)).await?;
        let page = match ids.is_empty() {
            true => Page::default(),
            false => self.claim(&me, ids, limit).await?,
        };
        let found = !page.events.is_empty() || !page.unreadable.is_empty();
        self.idle = if found {
            IDLE_MIN
        } else {
            (self.idle * 2).min(IDLE_MAX)
        };
        self.look_at = if found {
            Instant::now()
        } else {
            Instant::now() + self.idle
        };
        Ok(page)
    }
}

impl RowsReader {
    /// What may be claimed, the oldest first: pending, then due again, then left by others. The indexes on status and
    /// `locked_until` find them.
    async fn candidates(&self, count: usize) -> Result<Vec<Bson>, StoreError> {
        let at = self.connection.collections().await?;
        let mut ids = Vec::new();
        for (wanted, index) in [
            (pending(), "status_created_at"),
            (failed(), "status_created_at"),
            (abandoned(), "locked_until"),
        ] {
            let room = count - ids.len();
            if room == 0 {
                break;
            }
            let find = at
                .events
                .find(wanted)
                .projection(doc! { "_id": 1 })
                .sort(doc! { "created_at": 1 })
                .hint(Hint::Name(index.into()))
                .limit(i64::try_from(room).unwrap_or(i64::MAX));
            let found = self.connection.all(find).await?;
            ids.extend(found.into_iter().filter_map(|mut found| found.remove("_id")));
        }
        Ok(ids)
    }

    /// Locks those of them that may still be claimed, and reads them.
    async fn claim(&self, me: &str, ids: Vec<Bson>, limit: PageLimit) -> Result<Page, StoreError> {
        let at = self.connection.collections().await?;
        let full = ids.len() >= limit.events;
        let these = doc! { "_id": { "$in": &ids }, "$or": [pending(), failed(), abandoned()] };
        let lock = doc! { "$set": {
            "status": "processing", "locked_by": me, "processing_started_at": "$$NOW",
            "locked_until": { "$add": ["$$NOW", milliseconds(LOCK)] },
        } };
        self.connection
            .run(at.events.update_many(these, vec![lock]))
            .await?;
        let mut mine = locked(me);
        mine.insert("_id", doc! { "$in": ids });
        let events = at.events.clone_with_type::<RawDocumentBuf>();
        let documents = self.connection.all(events.find(mine)).await?;
        let mut page = Page::default();
        let (mut bytes, mut surplus) = (0, Vec::new());
        for document in &documents {
            let size = payload_bytes(document);
            bytes += if size > limit.payload_bytes_max { 0 } else { size };
            let taken = page.events.len() + page.unreadable.len();
            match event(document, limit) {
                Ok(event) if taken > 0 && bytes > limit.bytes => surplus.push(event.seq),
                Ok(event) => page.events.push(event),
                Err(unreadable) => page.unreadable.push(unreadable),
            }
        }
        page.more = full || !surplus.is_empty();
        if !surplus.is_empty() {
            let back = doc! { "seq": { "$in": timestamps(surplus) } };
            self.connection
                .run(at.events.update_many(back, give_back()))
                .await?;
        }
        page.events.sort_by_key(|event| event.seq);
        Ok(page)
    }
}

fn pending() -> Document {
    let due = doc! { "$lte": [{ "$ifNull": ["$available_at", null] }, "$$NOW"] };
    doc! { "status": "pending", "$expr": due }
}

fn failed() -> Document {
    let may = doc! { "$or": [
        { "$lte": [{ "$ifNull": ["$max_retries", null] }, null] }, { "$lt": ["$retry_count", "$max_retries"] },
    ] };
    let due = doc! { "$lte": [{ "$ifNull": ["$retry_at", null] }, "$$NOW"] };
    doc! { "status": "failed", "$expr": { "$and": [may, due] } }
}

fn abandoned() -> Document {
    doc! { "status": "processing", "$expr": { "$lt": ["$locked_until", "$$NOW"] } }
}

fn locked(by: &str) -> Document {
    doc! { "status": "processing", "locked_by": by }
}

/// Whoever looks next may have them.
pub(super) fn give_back() -> Document {
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
