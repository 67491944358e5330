//! Finds events and locks them.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use async_trait::async_trait;
use mongodb::{
    bson::{Bson, Document, RawDocumentBuf, doc},
    options::Hint,
};
use tokio::time::Instant;

use super::{
    super::{
        connection::Connection,
        document::{event, payload_bytes, timestamps},
        milliseconds,
    },
    LOCK, Shared, give_back, locked, unlock,
};
use crate::store::{Page, PageLimit, Reader, StoreError};

/// The pause after nothing was found: twice as long each time, up to the longest.
const IDLE_MIN: Duration = Duration::from_millis(50);
const IDLE_MAX: Duration = Duration::from_secs(10);

pub(super) struct RowsReader {
    connection: Arc<Connection>,
    shared: Arc<Shared>,
    first: bool,
    idle: Duration,
    look_at: Instant,
}

impl RowsReader {
    pub(super) fn new(connection: Arc<Connection>, shared: Arc<Shared>) -> Self {
        Self {
            connection,
            shared,
            first: true,
            idle: IDLE_MIN,
            look_at: Instant::now(),
        }
    }
}

#[async_trait]
impl Reader for RowsReader {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        let me = self.shared.name();
        if std::mem::take(&mut self.first) {
            // Forget the events of an earlier reader of this relay.
            self.shared.claimed().clear();
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
    /// Events that may be claimed, the oldest first: pending, then due again, then left by other relays. The
    /// indexes on status and `locked_until` find them.
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
        let read = page.events.iter().map(|event| event.seq);
        let unreadable = page.unreadable.iter().map(|row| row.seq);
        self.shared.claimed().extend(read.chain(unreadable));
        page.events.sort_by_key(|event| event.seq);
        Ok(page)
    }
}

fn pending() -> Document {
    let due = doc! { "$lte": [{ "$ifNull": ["$available_at", null] }, "$$NOW"] };
    doc! { "status": "pending", "$expr": due }
}

/// Whatever its number of attempts: an event without attempts left is dead, or is retried for ever.
fn failed() -> Document {
    let due = doc! { "$lte": [{ "$ifNull": ["$retry_at", null] }, "$$NOW"] };
    doc! { "status": "failed", "$expr": due }
}

fn abandoned() -> Document {
    doc! { "status": "processing", "$expr": { "$lt": ["$locked_until", "$$NOW"] } }
}
