//! Administration: the status of the outbox, and events written by hand.

use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{DateTime, Document, RawDocumentBuf, Timestamp, doc};
use pillarbox::{EnqueueError, Enqueued, Event, Limits, Outbox, lane::LANES};

use super::{
    MongoStore,
    connection::Collections,
    document,
    error::TxError,
    field, kinds, schema,
    transaction::{Tx, Work},
};
use crate::{
    catalog::Look,
    event::Seq,
    settlement::DeadReason,
    store::{
        Admin, PageLimit, Sample, StoreError,
        admin::{AdminEnqueueError, RECENT_PAYLOAD_BYTES_MAX, Recent, RelayStatus, StoreStatus},
        sample::SAMPLE_ROWS_MAX,
        trouble,
    },
};

/// The most bytes that an event may have beside its payload to be listed among the latest.
const RECENT_REST_BYTES_MAX: usize = 64 * 1024;

#[async_trait]
impl Admin for MongoStore {
    fn migration_sql(&self) -> String {
        schema::script(&self.connection.tables)
    }

    async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        schema::migrate(&self.connection).await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let at = self.connection.collections().await?;
        let now = self.connection.now().await?;
        let mut status = StoreStatus::default();
        let mut oldest: Option<DateTime> = None;
        for waiting in self.waiting(at).await? {
            let count = field::count(&waiting, "n");
            let state = field::text(&waiting, "_id");
            match state.as_str() {
                "failed" => status.failed = count,
                "held" => status.held = count,
                "delayed" => status.delayed = count,
                // Claimed for its first attempt or a later one: which one is unknown.
                _ => status.pending += count,
            }
            let first = waiting.get_datetime("oldest").ok().copied();
            if let Some(first) = first.filter(|_| state != "delayed") {
                oldest = Some(oldest.map_or(first, |oldest| oldest.min(first)));
            }
        }
        let open = doc! { "state": "open" };
        status.dead = self.connection.run(at.dead.count_documents(open)).await?;
        status.oldest_age = oldest.map(|oldest| since(oldest, now));
        self.relays(at, now, &mut status).await?;
        status.pressure = self.standing().await?;
        Ok(status)
    }

    /// The index on (status, created_at) serves the counts, from the oldest event on.
    async fn sample(&self) -> Result<Sample, StoreError> {
        let at = self.connection.collections().await?;
        let now = self.connection.now().await?;
        let mut sample = Sample::default();
        let mut oldest: Option<DateTime> = None;
        for status in ["pending", "processing", "failed", "held", "delayed"] {
            let counted = at.events.count_documents(doc! { "status": status });
            let n = self.connection.run(counted.limit(SAMPLE_ROWS_MAX)).await?;
            match status {
                "failed" => sample.failed = n,
                "held" => sample.held = n,
                "delayed" => sample.delayed = n,
                _ => sample.pending += n,
            }
            sample.pending_estimated |= status == "pending" && n == SAMPLE_ROWS_MAX;
            if n > 0 && status != "delayed" {
                let first = at
                    .events
                    .find_one(doc! { "status": status, "created_at": { "$type": "date" } });
                let first = first
                    .sort(doc! { "created_at": 1 })
                    .projection(doc! { "created_at": 1 });
                let first = self.connection.run(first).await?;
                let first = first.and_then(|first| first.get_datetime("created_at").ok().copied());
                oldest = oldest.into_iter().chain(first).min();
            }
        }
        sample.oldest_age = oldest.map(|oldest| since(oldest, now));
        self.sample_letters(at, &mut sample).await?;
        sample.keys_held = self.sample_keys(at).await?;
        let owned = doc! { "owner": { "$ne": null }, "lease_until": { "$gt": now } };
        let owned = self.connection.run(at.lanes.count_documents(owned)).await?;
        sample.lanes_without_owner = LANES.saturating_sub(u16::try_from(owned).unwrap_or(LANES));
        let living = at.relays.count_documents(doc! { "expires_at": { "$gt": now } });
        sample.relays = u16::try_from(self.connection.run(living).await?).unwrap_or(u16::MAX);
        self.sample_sizes(at, &mut sample).await?;
        sample.pressure = self.standing().await?;
        Ok(sample)
    }

    async fn low_mark(&self) -> Result<Seq, StoreError> {
        let at = self.connection.collections().await?;
        let lowest = at.lanes.find_one(doc! {}).sort(doc! { "low_mark": 1 });
        let lowest = self.connection.run(lowest).await?;
        Ok(lowest.map_or(0, |lane| field::number(&lane, "low_mark")))
    }

    /// The index on seq serves it, from its end. Events that are too large are not sent.
    async fn recent(&self, count: usize) -> Result<Vec<Recent>, StoreError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let at = self.connection.collections().await?;
        let bytes = (RECENT_PAYLOAD_BYTES_MAX + RECENT_REST_BYTES_MAX) as i64;
        let latest = [
            doc! { "$match": { "seq": { "$gt": Timestamp { time: 0, increment: 0 } } } },
            doc! { "$sort": { "seq": -1 } },
            doc! { "$limit": i64::try_from(count).unwrap_or(i64::MAX) },
            doc! { "$match": { "$expr": { "$lte": [{ "$bsonSize": "$$ROOT" }, bytes] } } },
        ];
        let latest = at.events.aggregate(latest).with_type::<RawDocumentBuf>();
        let limit = PageLimit {
            events: count,
            bytes: usize::MAX,
            payload_bytes_max: RECENT_PAYLOAD_BYTES_MAX,
        };
        let latest = self.connection.all(latest).await?;
        let readable = latest.iter().rev().filter_map(|found| {
            let event = document::event(found, limit).ok()?;
            let status = found.get_str("status").unwrap_or("pending").to_owned();
            Some(Recent { event, status })
        });
        Ok(readable.collect())
    }

    async fn kinds(&self, last: usize) -> Result<Look, StoreError> {
        if last == 0 {
            return Ok(Look::default());
        }
        kinds::look(&self.connection, last).await
    }

    async fn enqueue(&self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError> {
        let outbox = self.connection.outbox.clone().limits(limits.clone());
        let enqueue = Enqueue { outbox, events };
        self.connection
            .transaction(&enqueue)
            .await?
            .map_err(AdminEnqueueError::Refused)
    }
}

impl MongoStore {
    async fn sample_letters(&self, at: &Collections, sample: &mut Sample) -> Result<(), StoreError> {
        let by_reason = [
            doc! { "$match": { "state": "open" } },
            doc! { "$limit": SAMPLE_ROWS_MAX as i64 },
            doc! { "$group": { "_id": "$reason", "n": { "$sum": 1 } } },
        ];
        let letters: Vec<Document> = self.connection.all(at.dead.aggregate(by_reason)).await?;
        for letter in &letters {
            let reason = DeadReason::from_stored(&field::text(letter, "_id"));
            *sample.dead.entry(reason).or_default() += field::count(letter, "n");
        }
        Ok(())
    }

    /// The index `key` covers it.
    async fn sample_keys(&self, at: &Collections) -> Result<u64, StoreError> {
        let held = [
            doc! { "$sort": { "lane": 1, "key": 1, "_id": 1 } },
            doc! { "$limit": SAMPLE_ROWS_MAX as i64 },
            doc! { "$project": { "_id": 0, "lane": 1, "key": 1, "state": 1 } },
            doc! { "$match": { "state": { "$ne": "delayed" } } },
            doc! { "$group": { "_id": { "lane": "$lane", "key": "$key" } } },
            doc! { "$count": "n" },
        ];
        let held: Vec<Document> = self.connection.all(at.parked.aggregate(held)).await?;
        Ok(held.first().map_or(0, |held| field::count(held, "n")))
    }

    /// From the collection's own statistics.
    async fn sample_sizes(&self, at: &Collections, sample: &mut Sample) -> Result<(), StoreError> {
        let sizes = [
            doc! { "$collStats": { "storageStats": {} } },
            doc! { "$project": {
                "rows": "$storageStats.count",
                "table": "$storageStats.storageSize",
                "index": "$storageStats.totalIndexSize",
            } },
        ];
        let sizes: Vec<Document> = self.connection.all(at.events.aggregate(sizes)).await?;
        if let Some(sizes) = sizes.first() {
            sample.rows = field::optional_count(sizes, "rows");
            sample.table_bytes = field::optional_count(sizes, "table");
            sample.index_bytes = field::optional_count(sizes, "index");
        }
        Ok(())
    }

    /// The number of waiting events and the oldest time, by status. The index on (status, created_at) covers the
    /// query, so the cost grows with the unsettled events, and no event is read. A value that is not a time has no
    /// age.
    async fn waiting(&self, at: &Collections) -> Result<Vec<Document>, StoreError> {
        let is_date = doc! { "$eq": [{ "$type": "$created_at" }, "date"] };
        let by_status = [
            doc! { "$match": { "status": { "$in": ["pending", "processing", "failed", "held", "delayed"] } } },
            doc! { "$group": {
                "_id": "$status",
                "n": { "$sum": 1 },
                "oldest": { "$min": { "$cond": [is_date, "$created_at", null] } },
            } },
        ];
        self.connection.all(at.events.aggregate(by_status)).await
    }

    /// The relays that are alive, and the holders of lanes. A few documents, and 256.
    async fn relays(
        &self,
        at: &Collections,
        now: DateTime,
        status: &mut StoreStatus,
    ) -> Result<(), StoreError> {
        let held = [
            doc! { "$match": { "owner": { "$ne": null }, "lease_until": { "$gt": now } } },
            doc! { "$group": { "_id": "$owner", "n": { "$sum": 1 } } },
        ];
        let held: Vec<Document> = self.connection.all(at.lanes.aggregate(held)).await?;
        let lanes = |count: u64| u16::try_from(count).unwrap_or(u16::MAX);
        status.lanes_held = lanes(held.iter().map(|held| field::count(held, "n")).sum());
        let living = at.relays.find(doc! { "expires_at": { "$gt": now } });
        let living: Vec<Document> = self.connection.all(living.sort(doc! { "_id": 1 })).await?;
        let relay = |relay: &Document| {
            let held = held.iter().find(|held| held.get("_id") == relay.get("_id"));
            RelayStatus {
                id: field::text(relay, "_id").parse().unwrap_or_default(),
                name: field::text(relay, "name"),
                lanes: held.map_or(0, |held| lanes(field::count(held, "n"))),
                last_seen: relay
                    .get_datetime("seen_at")
                    .map_or(Duration::ZERO, |at| since(*at, now)),
                troubles: trouble::from_json(&field::text(relay, "troubles")),
            }
        };
        status.relays = living.iter().map(relay).collect();
        Ok(())
    }
}

/// In its own transaction.
struct Enqueue<'a> {
    outbox: Outbox,
    events: &'a [Event],
}

#[async_trait]
impl Work for Enqueue<'_> {
    /// A refused event has written nothing, so there is nothing to roll back.
    type Done = Result<Vec<Enqueued>, EnqueueError>;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Done, TxError> {
        tx.counted(2);
        match self.outbox.enqueue_all(&mut tx.session, self.events).await {
            // The store explains an outage; other errors are about the event.
            Err(EnqueueError::Database(error)) => Err(match error.downcast::<mongodb::error::Error>() {
                Ok(error) => TxError::Driver(*error),
                Err(error) => {
                    StoreError::new(crate::store::StoreErrorKind::Refused, error.to_string()).into()
                }
            }),
            enqueued => Ok(enqueued),
        }
    }
}

fn since(at: DateTime, now: DateTime) -> Duration {
    let millis = now.timestamp_millis().saturating_sub(at.timestamp_millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
