//! Queries of dead letters. The actions are in [`act`].

mod act;
mod expire;
mod letter;

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use pillarbox::{EventId, Limits};

pub(super) use self::letter::failures;
use self::letter::{id as letter_id, letter, recovery};
use super::{MongoStore, connection::Collections, document, field, milliseconds};
use crate::{
    dead::{
        Actor, CAUSES_MAX, CauseResult, DeadDetails, DeadFilter, DeadGroup, DeadLetter, DeadLetters,
        DeadState, OpenCause, ReplayAs, Touched,
    },
    event::Seq,
    settlement::DeadReason,
    store::{PageLimit, StoreError},
};

const GROUPS_MAX: i64 = 1_000;
const TOPICS_MAX: i64 = 100;

#[async_trait]
impl DeadLetters for MongoStore {
    /// The index `open` finds them. Distinct keys are counted by groups of groups: a set of them in one document
    /// could exceed the size limit of a document.
    async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError> {
        let _turn = self.connection.browsing().await;
        let at = self.connection.collections().await?;
        let by_cause = [
            doc! { "$match": open(filter) },
            doc! { "$group": {
                "_id": { "cause": "$fingerprint", "key": "$key" },
                "n": { "$sum": 1 },
                "first": { "$min": "$died_at" },
                "last": { "$max": "$died_at" },
                "latest": { "$max": "$_id" },
            } },
            doc! { "$group": {
                "_id": "$_id.cause",
                "n": { "$sum": "$n" },
                "keys": { "$sum": 1 },
                "first": { "$min": "$first" },
                "last": { "$max": "$last" },
                "latest": { "$max": "$latest" },
            } },
            doc! { "$sort": { "n": -1, "_id": 1 } },
            doc! { "$limit": GROUPS_MAX },
        ];
        let groups: Vec<Document> = self.connection.all(at.dead.aggregate(by_cause)).await?;
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let causes: Vec<String> = groups.iter().map(|group| field::text(group, "_id")).collect();
        let topics = self.topics_of(at, filter, &causes).await?;
        let latest: Vec<_> = groups.iter().filter_map(|group| group.get("latest")).collect();
        let latest = at.dead.find(doc! { "_id": { "$in": latest } });
        let latest = self
            .connection
            .all(latest.projection(doc! { "failures": 0 }))
            .await?;
        let latest: HashMap<Seq, &Document> = latest
            .iter()
            .map(|letter| (field::seq(letter, "_id"), letter))
            .collect();
        // If its letter was removed meanwhile, the group is skipped.
        let group = |(group, cause): (&Document, String)| {
            let latest = latest.get(&field::seq(group, "latest"))?;
            Some(DeadGroup {
                reason: DeadReason::from_stored(&field::text(latest, "reason")),
                sink: field::optional_text(latest, "sink"),
                error: field::text(latest, "error"),
                count: field::count(group, "n"),
                keys: field::count(group, "keys"),
                topics: topics.get(&cause).map_or(1, |topics| field::count(topics, "n")),
                first_died_at: field::time(group, "first"),
                last_died_at: field::time(group, "last"),
                told_at: None,
                fingerprint: cause,
            })
        };
        Ok(groups.iter().zip(causes).filter_map(group).collect())
    }

    /// The index on `_id` serves it backwards, or `open`.
    async fn list(
        &self,
        filter: &DeadFilter,
        state: Option<DeadState>,
        before: Option<Seq>,
        count: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let _turn = self.connection.browsing().await;
        let at = self.connection.collections().await?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut chosen = vec![matching(filter)];
        chosen.extend(state.map(|state| doc! { "state": state.as_str() }));
        chosen.extend(before.map(|before| doc! { "_id": { "$lt": document::timestamp(before) } }));
        let pipeline = [
            doc! { "$match": { "$and": chosen } },
            doc! { "$sort": { "_id": -1 } },
            doc! { "$limit": limited(count) },
            doc! { "$project": { "failures": 0 } },
            blocking(at),
        ];
        let found = self.connection.all(at.dead.aggregate(pipeline)).await?;
        Ok(found.iter().map(letter).collect())
    }

    async fn show(&self, id: &EventId) -> Result<Option<DeadDetails>, StoreError> {
        let _turn = self.connection.browsing().await;
        let at = self.connection.collections().await?;
        let one = [
            doc! { "$match": matching(&DeadFilter::one(id.clone())) },
            doc! { "$limit": 1 },
            blocking(at),
        ];
        let Some(found) = self.connection.all(at.dead.aggregate(one)).await?.pop() else {
            return Ok(None);
        };
        let seq = doc! { "seq": found.get("_id") };
        let done = at.recoveries.find(seq.clone()).sort(doc! { "at": 1, "_id": 1 });
        let done: Vec<Document> = self.connection.all(done).await?;
        let events = at.events.clone_with_type::<RawDocumentBuf>();
        let event = self.connection.run(events.find_one(seq)).await?;
        let event = event.and_then(|event| document::event(&event, within(&Limits::default())).ok());
        Ok(Some(DeadDetails {
            letter: letter(&found),
            failures: failures(&found),
            recoveries: done.iter().map(recovery).collect(),
            event: event.map(|stored| stored.event),
        }))
    }

    async fn touched(&self, filter: &DeadFilter) -> Result<Touched, StoreError> {
        let _turn = self.connection.browsing().await;
        let at = self.connection.collections().await?;
        let by_key = [
            doc! { "$match": open(filter) },
            doc! { "$group": { "_id": "$key", "n": { "$sum": 1 } } },
            doc! { "$group": { "_id": null, "count": { "$sum": "$n" }, "keys": { "$sum": 1 } } },
        ];
        let Some(all) = self.connection.all(at.dead.aggregate(by_key)).await?.pop() else {
            return Ok(Touched::default());
        };
        let by_topic = [
            doc! { "$match": open(filter) },
            doc! { "$group": { "_id": "$topic", "n": { "$sum": 1 } } },
            doc! { "$sort": { "n": -1, "_id": 1 } },
            doc! { "$limit": TOPICS_MAX },
        ];
        let topics = self.connection.all(at.dead.aggregate(by_topic)).await?;
        let topic = |topic: &Document| (field::text(topic, "_id"), field::count(topic, "n"));
        Ok(Touched {
            count: field::count(&all, "count"),
            keys: field::count(&all, "keys"),
            topics: topics.iter().map(topic).collect(),
        })
    }

    /// The index `open` covers the query: no letter is read.
    async fn causes(&self) -> Result<Vec<OpenCause>, StoreError> {
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

    /// The index `cause` serves it, from a time on, and the one on seq the lookup of the events.
    async fn outcome(&self, fingerprint: &str, since: Timestamp) -> Result<CauseResult, StoreError> {
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
        let mut outcome = CauseResult::default();
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

    /// The index `open` serves it in its order, the ones on seq the count of recoveries and the lookup of the
    /// event.
    async fn replayable(
        &self,
        filter: &DeadFilter,
        min_age: Duration,
        times_max: u32,
        limit: usize,
    ) -> Result<Vec<EventId>, StoreError> {
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
            doc! { "$match": open(filter) },
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
        Ok(found.iter().map(letter_id).collect())
    }

    async fn replay(
        &self,
        filter: &DeadFilter,
        limit: usize,
        send: ReplayAs,
        actor: &Actor,
    ) -> Result<usize, StoreError> {
        let act = match send {
            ReplayAs::Same => act::Act::Revive,
            ReplayAs::New => act::Act::Copy,
        };
        act::run(&self.connection, act, filter, limit, actor).await
    }

    async fn discard(&self, filter: &DeadFilter, limit: usize, actor: &Actor) -> Result<usize, StoreError> {
        act::run(&self.connection, act::Act::Discard, filter, limit, actor).await
    }

    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        expire::expire(&self.connection, age, limit).await
    }
}

impl MongoStore {
    /// The number of topics of each of these causes.
    async fn topics_of(
        &self,
        at: &Collections,
        filter: &DeadFilter,
        causes: &[String],
    ) -> Result<HashMap<String, Document>, StoreError> {
        let by_topic = [
            doc! { "$match": { "$and": [open(filter), { "fingerprint": { "$in": causes } }] } },
            doc! { "$group": { "_id": { "cause": "$fingerprint", "topic": "$topic" } } },
            doc! { "$group": { "_id": "$_id.cause", "n": { "$sum": 1 } } },
        ];
        self.by_id(at.dead.aggregate(by_topic)).await
    }

    async fn by_id(
        &self,
        command: impl IntoFuture<Output = Result<mongodb::Cursor<Document>, mongodb::error::Error>>,
    ) -> Result<HashMap<String, Document>, StoreError> {
        let found = self.connection.all(command).await?;
        Ok(found
            .into_iter()
            .map(|found| (field::text(&found, "_id"), found))
            .collect())
    }
}

/// The open letters that match.
fn open(filter: &DeadFilter) -> Document {
    let mut chosen = doc! { "state": DeadState::Open.as_str() };
    chosen.extend(matching(filter));
    chosen
}

fn matching(filter: &DeadFilter) -> Document {
    let mut chosen = Document::new();
    if !filter.ids.is_empty() {
        chosen.extend(letter::with_ids(&filter.ids));
    }
    let (topic, prefix) = filter.topic_and_prefix();
    let equal = [
        ("fingerprint", filter.fingerprint.as_deref()),
        ("topic", topic),
        ("event_type", filter.event_type.as_deref()),
        ("key", filter.key.as_deref()),
        ("reason", filter.reason.map(DeadReason::as_str)),
    ];
    for (name, wanted) in equal {
        if let Some(wanted) = wanted {
            chosen.insert(name, wanted);
        }
    }
    if let Some(prefix) = prefix {
        // The prefix ends with a dot, and the character after the dot is the slash.
        let end = format!("{}/", &prefix[..prefix.len() - 1]);
        chosen.insert("topic", doc! { "$gte": prefix, "$lt": end });
    }
    if let Some(since) = filter.since {
        chosen.insert("died_at", doc! { "$gte": document::date(since) });
    }
    chosen
}

/// Adds to each letter whether it blocks its key: `blocking` is then not empty.
fn blocking(at: &Collections) -> Document {
    doc! { "$lookup": {
        "from": at.parked.name(),
        "localField": "_id",
        "foreignField": "_id",
        "pipeline": [{ "$match": { "state": "blocked" } }, { "$project": { "_id": 1 } }],
        "as": "blocking",
    } }
}

/// As the server's limit. 0 would mean no limit: don't query then.
fn limited(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The limits for reading a single event.
pub(super) fn within(limits: &Limits) -> PageLimit {
    PageLimit {
        events: 1,
        bytes: usize::MAX,
        payload_bytes_max: limits.payload_bytes_max,
    }
}
