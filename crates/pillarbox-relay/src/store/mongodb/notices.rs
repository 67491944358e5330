//! What people were told about dead letters.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use mongodb::{
    bson::{Bson, Document, doc},
    options::ReturnDocument,
};
use uuid::Uuid;

use super::{
    MongoStore, document,
    error::{Trouble, is_duplicate},
    field, milliseconds,
    transaction::{Tx, Work},
};
use crate::{
    notice::{CAUSES_MAX, Claim, Delivery, Notices, OpenCause, Outcome, Telling, Told, ToldState},
    store::{self, StoreError, trouble},
};

/// Another relay may be quicker so often in a row; then it is left to it.
const CLAIM_TRIES: usize = 8;

#[async_trait]
impl Notices for MongoStore {
    /// The index `open` has everything that is asked for: no letter is read.
    async fn open(&self) -> Result<Vec<OpenCause>, StoreError> {
        let at = self.connection.collections().await?;
        let by_cause = [
            doc! { "$match": { "state": "open" } },
            doc! { "$group": { "_id": "$fingerprint", "n": { "$sum": 1 }, "last": { "$max": "$died_at" } } },
            doc! { "$sort": { "n": -1, "_id": 1 } },
            doc! { "$limit": CAUSES_MAX as i64 },
        ];
        let causes: Vec<Document> = self.connection.all(at.dead.aggregate(by_cause)).await?;
        let cause = |cause: &Document| OpenCause {
            fingerprint: field::text(cause, "_id"),
            count: field::count(cause, "n"),
            last_died_at: field::time(cause, "last"),
        };
        Ok(causes.iter().map(cause).collect())
    }

    /// The index `cause` serves it, from that time on.
    async fn died_since(&self, fingerprint: &str, after: Timestamp) -> Result<u64, StoreError> {
        let at = self.connection.collections().await?;
        let later = doc! {
            "fingerprint": fingerprint, "died_at": { "$gt": field::until(after) }, "state": "open",
        };
        self.connection.run(at.dead.count_documents(later)).await
    }

    /// Reads the whole of a small collection.
    async fn troubles(&self) -> Result<Vec<store::Trouble>, StoreError> {
        let at = self.connection.collections().await?;
        let living = doc! { "$expr": { "$gt": ["$expires_at", "$$NOW"] } };
        let living: Vec<Document> = self.connection.all(at.relays.find(living)).await?;
        let troubles = |relay| trouble::from_json(&field::text(relay, "troubles"));
        Ok(living.iter().flat_map(troubles).collect())
    }

    /// Reads the whole of a small collection.
    async fn told(&self) -> Result<(Timestamp, Vec<Told>), StoreError> {
        let at = self.connection.collections().await?;
        let latest = at.notices.find(doc! {}).sort(doc! { "told_at": -1 });
        let found = self.connection.all(latest.limit(CAUSES_MAX as i64)).await?;
        let now = document::time(self.connection.now().await?);
        Ok((now, found.iter().map(told).collect()))
    }

    async fn tell(&self, telling: &Telling, channels: &[String]) -> Result<bool, StoreError> {
        let tell = Tell {
            telling,
            channels,
            beaten: AtomicBool::new(false),
        };
        match self.connection.transaction(&tell).await {
            Err(_) if tell.beaten.load(Ordering::Relaxed) => Ok(false),
            told => told.map(|()| true),
        }
    }

    /// The index `cause` serves it, from a time on, and the one on seq the look at the events.
    async fn outcome(&self, fingerprint: &str, since: Timestamp) -> Result<Outcome, StoreError> {
        let at = self.connection.collections().await?;
        let counted = [
            doc! { "$match": {
                "fingerprint": fingerprint,
                "died_at": { "$gte": document::date(since) },
                "state": { "$in": ["replayed", "discarded"] },
            } },
            doc! { "$project": { "state": 1 } },
            doc! { "$lookup": {
                "from": at.events.name(),
                "localField": "_id",
                "foreignField": "seq",
                "pipeline": [
                    { "$match": { "status": { "$nin": ["published", "dead"] } } },
                    { "$project": { "_id": 1 } },
                ],
                "as": "waiting",
            } },
            doc! { "$group": {
                "_id": "$state", "n": { "$sum": 1 }, "waiting": { "$sum": { "$size": "$waiting" } },
            } },
        ];
        let mut outcome = Outcome::default();
        let states: Vec<Document> = self.connection.all(at.dead.aggregate(counted)).await?;
        for state in &states {
            let count = field::count(state, "n");
            match field::text(state, "_id").as_str() {
                "replayed" => (outcome.replayed, outcome.waiting) = (count, field::count(state, "waiting")),
                _ => outcome.discarded = count,
            }
        }
        Ok(outcome)
    }

    async fn claim(&self, channel: &str, lease: Duration) -> Result<Claim, StoreError> {
        for _ in 0..CLAIM_TRIES {
            let Some(first) = self.first_due(channel).await? else {
                return Ok(Claim::Nothing { next: None });
            };
            let wait = Duration::from_millis(field::count(&first, "wait"));
            if wait > Duration::ZERO {
                return Ok(Claim::Nothing { next: Some(wait) });
            }
            if let Some(delivery) = self.take(&first, lease).await? {
                return Ok(Claim::One(Box::new(delivery)));
            }
        }
        Ok(Claim::Nothing {
            next: Some(Duration::ZERO),
        })
    }

    async fn delivered(&self, channel: &str, delivery: &Delivery) -> Result<(), StoreError> {
        let at = self.connection.collections().await?;
        let place = doc! { "_id": place(channel, &delivery.fingerprint, delivery.n) };
        self.connection
            .run(at.notice_sends.delete_one(place))
            .await
            .map(drop)
    }

    async fn failed(
        &self,
        channel: &str,
        delivery: &Delivery,
        retry_in: Option<Duration>,
        error: &str,
    ) -> Result<(), StoreError> {
        let at = self.connection.collections().await?;
        let due_at = match retry_in {
            Some(wait) => Bson::from(doc! { "$add": ["$$NOW", milliseconds(wait)] }),
            None => Bson::Null,
        };
        let change = vec![doc! { "$set": { "due_at": due_at, "error": { "$literal": error } } }];
        let place = doc! { "_id": place(channel, &delivery.fingerprint, delivery.n) };
        self.connection
            .run(at.notice_sends.update_one(place, change))
            .await
            .map(drop)
    }

    /// Reads the whole of two small collections.
    async fn forget(&self, age: Duration) -> Result<(), StoreError> {
        let at = self.connection.collections().await?;
        let before = |name: &str| {
            let latest = doc! { "$subtract": ["$$NOW", milliseconds(age)] };
            doc! { "$expr": { "$lt": [name, latest] } }
        };
        self.connection
            .run(at.notice_sends.delete_many(before("$made_at")))
            .await?;
        let mut over = before("$told_at");
        over.insert("state", ToldState::Recovered.as_str());
        self.connection.run(at.notices.delete_many(over)).await.map(drop)
    }
}

impl MongoStore {
    /// Of the first notices of each fingerprint that wait on this channel, the one that is due first, and in how many
    /// milliseconds. The index `channel_due` serves it.
    async fn first_due(&self, channel: &str) -> Result<Option<Document>, StoreError> {
        let at = self.connection.collections().await?;
        let first = [
            doc! { "$match": { "_id.channel": channel, "due_at": { "$type": "date" } } },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$group": {
                "_id": "$_id.fingerprint",
                "place": { "$first": "$_id" },
                "due_at": { "$first": "$due_at" },
                "attempts": { "$first": "$attempts" },
            } },
            doc! { "$sort": { "due_at": 1 } },
            doc! { "$limit": 1 },
            doc! { "$set": { "wait": { "$subtract": ["$due_at", "$$NOW"] } } },
        ];
        Ok(self.connection.all(at.notice_sends.aggregate(first)).await?.pop())
    }

    /// `None`: another relay was first, and the delivery is not as it was seen.
    async fn take(&self, first: &Document, lease: Duration) -> Result<Option<Delivery>, StoreError> {
        let at = self.connection.collections().await?;
        let get = |name: &str| first.get(name).cloned();
        let seen = doc! { "_id": get("place"), "due_at": get("due_at"), "attempts": get("attempts") };
        let change = vec![doc! { "$set": {
            "due_at": { "$add": ["$$NOW", milliseconds(lease)] },
            "attempts": { "$add": ["$attempts", 1] },
        } }];
        let take = at.notice_sends.find_one_and_update(seen, change);
        let taken = self
            .connection
            .run(take.return_document(ReturnDocument::After))
            .await?;
        Ok(taken.as_ref().map(delivery))
    }
}

/// A notice with its deliveries, unless somebody has told this fingerprint meanwhile: then there is a document with this
/// fingerprint and another number, and a second one can't be.
struct Tell<'a> {
    telling: &'a Telling,
    channels: &'a [String],
    beaten: AtomicBool,
}

#[async_trait]
impl Work for Tell<'_> {
    type Done = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), Trouble> {
        let telling = self.telling;
        let before = doc! { "_id": &telling.fingerprint, "n": telling.before as i64 };
        let change = vec![doc! { "$set": {
            "n": telling.before as i64 + 1,
            "state": telling.state.as_str(),
            "count": telling.count as i64,
            // In microseconds, as it was given: a date has only milliseconds.
            "last_died_at": telling.last_died_at.as_microsecond(),
            "told_at": "$$NOW",
            "about": { "$literal": telling.about.to_string() },
        } }];
        tx.counted(1 + self.channels.len() as u64);
        let tell = tx.at.notices.find_one_and_update(before, change).upsert(true);
        let told = tell
            .return_document(ReturnDocument::After)
            .session(&mut tx.session)
            .await;
        self.beaten
            .store(told.as_ref().is_err_and(is_duplicate), Ordering::Relaxed);
        let now = told?.and_then(|told| told.get_datetime("told_at").ok().copied());
        for channel in self.channels {
            let place = doc! { "_id": place(channel, &telling.fingerprint, telling.before + 1) };
            let send = doc! { "$setOnInsert": {
                "id": telling.id.to_string(),
                "body": &telling.body,
                "made_at": now,
                "due_at": now,
                "attempts": 0,
                "error": null,
            } };
            let send = tx.at.notice_sends.update_one(place, send).upsert(true);
            send.session(&mut tx.session).await?;
        }
        Ok(())
    }
}

fn place(channel: &str, fingerprint: &str, n: u64) -> Document {
    doc! { "channel": channel, "fingerprint": fingerprint, "n": n as i64 }
}

fn told(found: &Document) -> Told {
    Told {
        fingerprint: field::text(found, "_id"),
        n: field::count(found, "n"),
        state: ToldState::from_stored(&field::text(found, "state")),
        count: field::count(found, "count"),
        last_died_at: Timestamp::from_microsecond(field::number(found, "last_died_at")).unwrap_or_default(),
        told_at: field::time(found, "told_at"),
        about: serde_json::from_str(&field::text(found, "about")).unwrap_or_default(),
    }
}

fn delivery(found: &Document) -> Delivery {
    let place = found.get_document("_id").cloned().unwrap_or_default();
    Delivery {
        fingerprint: field::text(&place, "fingerprint"),
        n: field::count(&place, "n"),
        id: field::id(found, "id").unwrap_or(Uuid::nil()),
        body: field::text(found, "body"),
        attempts: u32::try_from(field::number(found, "attempts")).unwrap_or_default(),
    }
}
