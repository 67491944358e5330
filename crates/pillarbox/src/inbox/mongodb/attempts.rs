//! Attempts that did not end, in MongoDB. `_id` is the unique key, so no other index is needed.

use std::{collections::HashMap, time::Duration};

use mongodb::{
    Collection, Database,
    bson::{Bson, DateTime, Document, doc},
    options::{ReturnDocument, WriteConcern},
};

use super::{
    super::attempts::{Attempts, Begun, EVENT_AGE_MAX, MEMBER_AGE_MAX, Place, ROWS_MAX},
    collection, collections, is_missing_collection, not_migrated,
};
use crate::{event::EventId, inbox::InboxError};

impl Attempts for Database {
    async fn enter(&self, at: Place<'_>, member: &EventId) -> Result<(), InboxError> {
        let attempts = attempts(self, at)?;
        // The upsert would create a missing collection. But if it is missing, `migrate` was not run.
        match attempts.list_indexes().await {
            Ok(_) => {}
            Err(error) if is_missing_collection(&error) => return Err(not_migrated(&attempts)),
            Err(error) => return Err(error.into()),
        }
        attempts
            .update_one(
                doc! { "_id": key(at.group, member) },
                doc! { "$set": { "begun": 0, "begun_at": DateTime::now() } },
            )
            .upsert(true)
            .await?;
        Ok(())
    }

    async fn tidy(&self, at: Place<'_>) -> Result<(), InboxError> {
        let attempts = attempts(self, at)?;
        for (kind, age) in [
            (doc! { "$eq": 0 }, MEMBER_AGE_MAX),
            (doc! { "$gt": 0 }, EVENT_AGE_MAX),
        ] {
            let mut old = of_group(at.group);
            old.insert("begun", kind);
            old.insert("begun_at", doc! { "$lt": ago(age) });
            attempts.delete_many(old).await?;
        }
        Ok(())
    }

    async fn leave(&self, at: Place<'_>, member: &EventId) -> Result<(), InboxError> {
        attempts(self, at)?
            .delete_one(doc! { "_id": key(at.group, member) })
            .await?;
        Ok(())
    }

    async fn begun(&self, at: Place<'_>) -> Result<Vec<Begun>, InboxError> {
        let attempts = attempts(self, at)?;
        let mut found = attempts.find(of_group(at.group)).limit(ROWS_MAX).await?;
        let mut begun = HashMap::new();
        while found.advance().await? {
            let row = found.deserialize_current()?;
            let id = row.get_document("_id").and_then(|key| key.get_str("event_id"));
            if let Ok(id) = id {
                begun.insert(EventId::from(id), times(&row));
            }
        }
        // Another consumer processed these events, while the one that wrote the row died.
        let (processed, _) = collections(self, at.inbox)?;
        let ids: Vec<String> = begun.keys().map(EventId::to_string).collect();
        let seen = doc! { "consumer_group": at.group, "event_id": { "$in": ids } };
        let mut settled = processed.find(seen).await?;
        while settled.advance().await? {
            let row = settled.deserialize_current()?;
            if let Ok(id) = row.get_str("event_id") {
                let id = EventId::from(id);
                begun.remove(&id);
                self.leave(at, &id).await?;
            }
        }
        Ok(begun.into_iter().map(|(id, times)| Begun { id, times }).collect())
    }

    async fn begins(
        &self,
        at: Place<'_>,
        event_id: &EventId,
        alone: bool,
    ) -> Result<Option<u32>, InboxError> {
        let (processed, _) = collections(self, at.inbox)?;
        let seen = doc! { "consumer_group": at.group, "event_id": event_id.to_string() };
        if processed.find_one(seen).await?.is_some() {
            return Ok(None);
        }
        let times = match alone {
            true => doc! { "$inc": { "begun": 1 } },
            false => doc! { "$max": { "begun": 1 } },
        };
        let mut change = doc! { "$set": { "begun_at": DateTime::now() } };
        change.extend(times);
        let row = attempts(self, at)?
            .find_one_and_update(doc! { "_id": key(at.group, event_id) }, change)
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        Ok(row.map(|row| self::times(&row)))
    }

    async fn ends(&self, at: Place<'_>, event_id: &EventId) -> Result<(), InboxError> {
        let attempts = attempts(self, at)?;
        let row = doc! { "_id": key(at.group, event_id), "begun": { "$gt": 1 } };
        let fewer = attempts.update_one(row, doc! { "$inc": { "begun": -1 } }).await?;
        match fewer.matched_count {
            0 => self.leave(at, event_id).await,
            _ => Ok(()),
        }
    }
}

/// The write concern: these writes must survive more than this process.
pub(super) fn attempts(database: &Database, at: Place<'_>) -> Result<Collection<Document>, InboxError> {
    let attempts = collection(database, at.inbox, &at.inbox.attempts()).ok_or(InboxError::NoDatabase)?;
    let durable = mongodb::options::CollectionOptions::builder()
        .write_concern(WriteConcern::majority())
        .build();
    let database = database.client().database(&attempts.namespace().db);
    Ok(database.collection_with_options(attempts.name(), durable))
}

pub(super) fn key(group: &str, event_id: &EventId) -> Document {
    doc! { "consumer_group": group, "event_id": event_id.to_string() }
}

/// The rows whose `_id` begins with the group: a range of the only index.
fn of_group(group: &str) -> Document {
    doc! { "_id": {
        "$gte": { "consumer_group": group, "event_id": "" },
        "$lt": { "consumer_group": group, "event_id": Bson::MaxKey },
    } }
}

fn times(row: &Document) -> u32 {
    let times = row
        .get_i32("begun")
        .map(i64::from)
        .or_else(|_| row.get_i64("begun"));
    times
        .ok()
        .and_then(|times| u32::try_from(times).ok())
        .unwrap_or_default()
}

fn ago(age: Duration) -> DateTime {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_millis(DateTime::now().timestamp_millis().saturating_sub(age))
}
