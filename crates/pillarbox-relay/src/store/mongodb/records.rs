//! Records, in one collection.

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

use super::{
    MongoStore, document,
    error::{TxError, is_duplicate},
    field, milliseconds,
    transaction::{Tx, Work},
};
use crate::store::{
    StoreError, StoreErrorKind,
    records::{Change, Content, Record, RecordClaim, RecordKey, Records},
};

/// How often in a row another relay may be faster. Then this one leaves the rest to it.
const CLAIM_TRIES: usize = 8;

#[async_trait]
impl Records for MongoStore {
    /// The index `space_due` finds the space.
    async fn read(
        &self,
        space: &str,
        name: Option<&str>,
        limit: usize,
    ) -> Result<(Timestamp, Vec<Record>), StoreError> {
        let at = self.connection.collections().await?;
        let mut wanted = doc! { "_id.space": space };
        if let Some(name) = name {
            wanted.insert("_id.name", name);
        }
        let latest = at.records.find(wanted).sort(doc! { "written_at": -1 });
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = self.connection.all(latest.limit(limit)).await?;
        let now = document::time(self.connection.now().await?);
        Ok((now, found.iter().map(record).collect()))
    }

    async fn write(&self, changes: &[Change]) -> Result<bool, StoreError> {
        let write = Write {
            changes,
            beaten: AtomicBool::new(false),
        };
        match self.connection.transaction(&write).await {
            Err(_) if write.beaten.load(Ordering::Relaxed) => Ok(false),
            written => written.map(|()| true),
        }
    }

    async fn claim(&self, space: &str, lease: Duration) -> Result<RecordClaim, StoreError> {
        for _ in 0..CLAIM_TRIES {
            let Some(first) = self.first_due(space).await? else {
                return Ok(RecordClaim::Nothing { next: None });
            };
            let wait = Duration::from_millis(field::count(&first, "wait"));
            if wait > Duration::ZERO {
                return Ok(RecordClaim::Nothing { next: Some(wait) });
            }
            if let Some(record) = self.take(&first, lease).await? {
                return Ok(RecordClaim::One(Box::new(record)));
            }
        }
        Ok(RecordClaim::Nothing {
            next: Some(Duration::ZERO),
        })
    }

    /// Reads the whole of a small collection.
    async fn drop_expired(&self) -> Result<(), StoreError> {
        let at = self.connection.collections().await?;
        // A date sorts after null, so records that do not expire must be excluded explicitly.
        let expired = doc! {
            "expires_at": { "$type": "date" },
            "$expr": { "$lt": ["$expires_at", "$$NOW"] },
        };
        self.connection
            .run(at.records.delete_many(expired))
            .await
            .map(drop)
    }
}

impl MongoStore {
    /// The record that is due first, among the first records of the queues of this space, and in how many
    /// milliseconds. The index `space_due` serves it.
    async fn first_due(&self, space: &str) -> Result<Option<Document>, StoreError> {
        let at = self.connection.collections().await?;
        let first = [
            doc! { "$match": { "_id.space": space, "due_at": { "$type": "date" } } },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$group": {
                "_id": "$_id.name",
                "key": { "$first": "$_id" },
                "due_at": { "$first": "$due_at" },
                "version": { "$first": "$version" },
            } },
            doc! { "$sort": { "due_at": 1 } },
            doc! { "$limit": 1 },
            doc! { "$set": { "wait": { "$subtract": ["$due_at", "$$NOW"] } } },
        ];
        Ok(self.connection.all(at.records.aggregate(first)).await?.pop())
    }

    /// `None`: another relay was first, and the record has changed.
    async fn take(&self, first: &Document, lease: Duration) -> Result<Option<Record>, StoreError> {
        let at = self.connection.collections().await?;
        let get = |name: &str| first.get(name).cloned();
        let seen = doc! { "_id": get("key"), "version": get("version") };
        let change = vec![doc! { "$set": {
            "due_at": { "$add": ["$$NOW", milliseconds(lease)] },
            "claims": { "$add": ["$claims", 1] },
            "version": { "$add": ["$version", 1_i64] },
        } }];
        let take = at.records.find_one_and_update(seen, change);
        let taken = self
            .connection
            .run(take.return_document(ReturnDocument::After))
            .await?;
        Ok(taken.as_ref().map(record))
    }
}

/// Applies all changes, or none if a record does not have the version that its change names.
struct Write<'a> {
    changes: &'a [Change],
    beaten: AtomicBool,
}

#[async_trait]
impl Work for Write<'_> {
    type Done = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), TxError> {
        self.beaten.store(false, Ordering::Relaxed);
        tx.counted(self.changes.len() as u64);
        for change in self.changes {
            let seen = doc! { "_id": id(&change.key), "version": change.version as i64 };
            let applied = match &change.content {
                Some(content) => {
                    // If there must be none, an upsert reports a record of any version as a duplicate.
                    let put = tx
                        .at
                        .records
                        .update_one(seen, content_of(content, change.version));
                    let put = put.upsert(change.version == 0).session(&mut tx.session).await;
                    put.map(|put| put.matched_count == 1 || put.upserted_id.is_some())
                }
                None => {
                    let removed = tx.at.records.delete_one(seen).session(&mut tx.session).await;
                    removed.map(|removed| removed.deleted_count == 1)
                }
            };
            match applied {
                Ok(true) => {}
                Ok(false) => {
                    self.beaten.store(true, Ordering::Relaxed);
                    return Err(
                        StoreError::new(StoreErrorKind::Refused, "a record has another version").into(),
                    );
                }
                Err(error) => {
                    self.beaten.store(is_duplicate(&error), Ordering::Relaxed);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

fn content_of(content: &Content, version: u64) -> Vec<Document> {
    let later = |wait: Option<Duration>| match wait {
        Some(wait) => Bson::from(doc! { "$add": ["$$NOW", milliseconds(wait)] }),
        None => Bson::Null,
    };
    vec![doc! { "$set": {
        "version": version as i64 + 1,
        "claims": { "$ifNull": ["$claims", 0] },
        "value": { "$literal": &content.value },
        "due_at": later(content.due_in),
        "written_at": "$$NOW",
        "expires_at": later(content.keep_for),
    } }]
}

/// The order of the fields matters: MongoDB compares whole documents.
fn id(key: &RecordKey) -> Document {
    doc! { "space": &key.space, "name": &key.name, "place": key.place }
}

fn record(found: &Document) -> Record {
    let key = found.get_document("_id").cloned().unwrap_or_default();
    Record {
        key: RecordKey {
            space: field::text(&key, "space"),
            name: field::text(&key, "name"),
            place: field::number(&key, "place"),
        },
        version: field::count(found, "version"),
        claims: u32::try_from(field::count(found, "claims")).unwrap_or(u32::MAX),
        value: field::text(found, "value"),
        written_at: field::time(found, "written_at"),
    }
}
