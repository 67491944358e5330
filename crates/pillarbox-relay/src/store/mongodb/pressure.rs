//! Backpressure: the figures that applications read regularly. No sequence tells what was written since, so they
//! are kept fresh.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mongodb::bson::{Bson, DateTime, Document, doc};
use pillarbox::pressure::Limit;

use super::{MongoStore, document, field};
use crate::{
    event::Seq,
    pressure::{Class, Figures, Gauge, Glance, Standing, TopicWaiting, Waiting},
    store::StoreError,
};

/// If the figures are older, producers count for themselves.
const RELIABLE: Duration = Duration::from_secs(3);

#[async_trait]
impl Gauge for MongoStore {
    async fn set_classes(&self, classes: &[Class]) -> Result<(), StoreError> {
        let at = self.connection.collections().await?;
        let there: Vec<Document> = self.connection.all(at.pressure.find(doc! {})).await?;
        let places: Vec<i32> = (0..).take(classes.len()).collect();
        let others = doc! { "_id": { "$nin": &places } };
        self.connection.run(at.pressure.delete_many(others)).await?;
        for (place, class) in places.into_iter().zip(classes) {
            let wanted = setting(class);
            let same = |there: &Document| {
                there.get("_id") == Some(&Bson::Int32(place))
                    && wanted.iter().all(|(name, value)| there.get(name) == Some(value))
            };
            if there.iter().any(same) {
                continue;
            }
            let mut new = wanted;
            // Figures that count as old: until there are new ones, producers count for themselves.
            new.extend(doc! { "pending": 0_i64, "drained": 0.0, "measured_at": DateTime::from_millis(0) });
            let set = at.pressure.replace_one(doc! { "_id": place }, new).upsert(true);
            self.connection.run(set).await?;
        }
        Ok(())
    }

    /// The index on (status, created_at) covers the query.
    async fn glance(&self, enough: u64) -> Result<Glance, StoreError> {
        let at = self.connection.collections().await?;
        let waiting = doc! { "status": "pending" };
        let waiting = at.events.count_documents(waiting).limit(enough);
        let waiting = self.connection.run(waiting).await?;
        let figures = [
            doc! { "$group": {
                "_id": null, "pending": { "$max": "$pending" }, "measured_at": { "$min": "$measured_at" },
            } },
            doc! { "$set": { "now": "$$NOW" } },
        ];
        let figures: Vec<Document> = self.connection.all(at.pressure.aggregate(figures)).await?;
        let figures = figures.into_iter().next().unwrap_or_default();
        let date = |name: &str| figures.get_datetime(name).map_or(0, |at| at.timestamp_millis());
        let (then, now) = (date("measured_at"), date("now"));
        let age = Duration::from_millis(u64::try_from(now.saturating_sub(then)).unwrap_or(0));
        Ok(Glance {
            waiting,
            at: 0,
            noted_at: 0,
            noted_pending: field::count(&figures, "pending"),
            age: (then > 0).then_some(age),
        })
    }

    /// The index on (status, created_at) finds them, the oldest first; each event is read for its topic.
    async fn count(&self, _at: Seq, limit: u64) -> Result<Waiting, StoreError> {
        let at = self.connection.collections().await?;
        let by_topic = [
            doc! { "$match": { "status": "pending" } },
            doc! { "$sort": { "created_at": 1 } },
            doc! { "$limit": i64::try_from(limit).unwrap_or(i64::MAX) },
            doc! { "$group": { "_id": "$topic", "n": { "$sum": 1_i64 }, "oldest": { "$min": "$created_at" } } },
        ];
        let found: Vec<Document> = self.connection.all(at.events.aggregate(by_topic)).await?;
        let topic = |found: &Document| TopicWaiting {
            topic: field::text(found, "_id"),
            count: field::count(found, "n"),
            oldest: found.get_datetime("oldest").ok().map(|at| document::time(*at)),
        };
        let topics: Vec<TopicWaiting> = found.iter().map(topic).collect();
        let counted: u64 = topics.iter().map(|topic| topic.count).sum();
        let behind = match counted < limit {
            true => 0,
            false => {
                self.connection
                    .run(at.events.count_documents(doc! { "status": "pending" }))
                    .await?
            }
        };
        Ok(Waiting {
            topics,
            not_counted: behind.saturating_sub(counted),
        })
    }

    async fn note(&self, figures: &Figures) -> Result<(), StoreError> {
        let at = self.connection.collections().await?;
        let age = i64::try_from(figures.measured.elapsed().as_millis()).unwrap_or(i64::MAX);
        for (place, (pending, oldest)) in (0_i32..).zip(&figures.classes) {
            let oldest = oldest.map_or(Bson::Null, |at: Timestamp| {
                DateTime::from_millis(at.as_millisecond()).into()
            });
            let change = vec![doc! { "$set": {
                "pending": i64::try_from(*pending).unwrap_or(i64::MAX),
                "oldest_at": oldest,
                "drained": figures.drained,
                "measured_at": { "$subtract": ["$$NOW", age] },
            } }];
            self.connection
                .run(at.pressure.update_one(doc! { "_id": place }, change))
                .await?;
        }
        Ok(())
    }

    fn reliable_for(&self) -> Option<Duration> {
        Some(RELIABLE)
    }
}

impl MongoStore {
    /// The state of the classes, as producers see it. If the figures are too old, all pending events are counted,
    /// as producers do.
    pub(super) async fn standing(&self) -> Result<Vec<Standing>, StoreError> {
        let at = self.connection.collections().await?;
        let there = [
            doc! { "$sort": { "_id": 1 } },
            doc! { "$set": { "age": { "$subtract": ["$$NOW", "$measured_at"] },
            "waited": { "$subtract": ["$$NOW", "$oldest_at"] } } },
        ];
        let there: Vec<Document> = self.connection.all(at.pressure.aggregate(there)).await?;
        let old = |class: &Document| Duration::from_millis(field::count(class, "age")) >= RELIABLE;
        let mut waiting = 0;
        if there.iter().any(old) {
            let pending = at.events.count_documents(doc! { "status": "pending" });
            waiting = self.connection.run(pending).await?;
        }
        let standing = |class: &Document| {
            let limit = |name| field::optional_count(class, name);
            let judge = Limit {
                soft: limit("soft"),
                hard: limit("hard"),
                max_delay: Duration::from_millis(field::count(class, "max_delay_ms")),
            };
            let (pending, drained) = match old(class) {
                true => (waiting, None),
                false => (field::count(class, "pending"), class.get_f64("drained").ok()),
            };
            let oldest = limit("waited").map(Duration::from_millis);
            judge
                .judge(&field::text(class, "class"), pending, oldest, drained)
                .into()
        };
        Ok(there.iter().map(standing).collect())
    }
}

/// The configuration of a class.
fn setting(class: &Class) -> Document {
    let limit =
        |limit: Option<u64>| limit.map_or(Bson::Null, |n| i64::try_from(n).unwrap_or(i64::MAX).into());
    let topics: Vec<&str> = class.topics.iter().map(|pattern| pattern.as_str()).collect();
    doc! {
        "class": &class.name,
        "topics": topics,
        "soft": limit(class.limit.soft),
        "hard": limit(class.limit.hard),
        "max_delay_ms": class.limit.max_delay.as_millis() as i64,
    }
}
