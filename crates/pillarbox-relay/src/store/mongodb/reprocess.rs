//! When the reprocessor ran, and which letters it may take.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mongodb::bson::{Bson, Document, doc};
use uuid::Uuid;

use super::{MongoStore, dead, document, error::is_duplicate, field, milliseconds};
use crate::{dead::DeadFilter, reprocess::Schedules, store::StoreError};

#[async_trait]
impl Schedules for MongoStore {
    async fn last_run(&self, name: &str) -> Result<(Timestamp, Option<Timestamp>), StoreError> {
        let at = self.connection.collections().await?;
        let found = self
            .connection
            .run(at.schedules.find_one(doc! { "_id": name }))
            .await?;
        let now = document::time(self.connection.now().await?);
        Ok((
            now,
            found.and_then(|found| field::optional_time(&found, "last_run_at")),
        ))
    }

    async fn claim_run(&self, name: &str, last: Option<Timestamp>) -> Result<bool, StoreError> {
        let at = self.connection.collections().await?;
        let last = last.map_or(Bson::Null, |last| field::until(last).into());
        let change = vec![doc! { "$set": { "last_run_at": "$$NOW" } }];
        let claim = at
            .schedules
            .update_one(doc! { "_id": name, "last_run_at": last }, change);
        // It ran at another time: then there is a document of this name, and a second one can't be.
        let claimed = async {
            match claim.upsert(true).await {
                Err(error) if is_duplicate(&error) => Ok(false),
                claimed => claimed.map(|_| true),
            }
        };
        self.connection.run(claimed).await
    }

    /// The index `open` serves it in its order, the ones on seq the count of recoveries and the look for the event.
    async fn candidates(
        &self,
        filter: &DeadFilter,
        min_age: Duration,
        times_max: u32,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        if limit == 0 || times_max == 0 {
            return Ok(Vec::new());
        }
        let at = self.connection.collections().await?;
        let of_letter = |from: &str, pipeline: Vec<Document>, name: &str| {
            doc! { "$lookup": {
                "from": from, "localField": "_id", "foreignField": "seq", "pipeline": pipeline, "as": name,
            } }
        };
        let only_id = doc! { "$project": { "_id": 1 } };
        let replays = vec![
            doc! { "$match": { "action": "replayed" } },
            doc! { "$limit": i64::from(times_max) },
            only_id.clone(),
        ];
        let oldest = doc! { "$subtract": ["$$NOW", milliseconds(min_age)] };
        let chosen = [
            doc! { "$match": dead::open(filter) },
            doc! { "$match": { "$expr": { "$lte": ["$died_at", oldest] } } },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$project": { "event_id": 1 } },
            of_letter(at.recoveries.name(), replays, "replays"),
            doc! { "$match": { "$expr": { "$lt": [{ "$size": "$replays" }, i64::from(times_max)] } } },
            of_letter(at.events.name(), vec![only_id], "event"),
            doc! { "$match": { "event": { "$ne": [] } } },
            doc! { "$limit": i64::try_from(limit).unwrap_or(i64::MAX) },
        ];
        let found: Vec<Document> = self.connection.all(at.dead.aggregate(chosen)).await?;
        Ok(found.iter().map(dead::letter_id).collect())
    }
}
