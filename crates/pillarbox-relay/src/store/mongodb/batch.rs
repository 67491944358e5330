//! A mixed settlement in its transaction: what it reads, and what it writes.

use std::collections::{BTreeMap, BTreeSet};

use mongodb::bson::{Bson, DateTime, Document, doc};
use pillarbox::wire;

use super::{
    after_death::{Letter, latest},
    document::{date, seq, timestamp, timestamps},
    error::TxError,
    field,
    keys::Keys,
    lanes::under,
    milliseconds,
    transaction::Tx,
};
use crate::{
    event::{Lane, Seq},
    settlement::{FailedTry, Parked, Settlement},
    store::{HeldLane, StoreError},
};

/// What the main collection contains about an event.
pub(super) struct Known {
    pub(super) lane: Lane,
    pub(super) status: String,
    pub(super) document: Document,
}

impl Known {
    fn new(document: Document) -> Option<(Seq, Self)> {
        let seq = seq(document.get_timestamp("seq").ok()?);
        let known = Self {
            // The query found it, so it is a number of some type.
            lane: field::lane(&document),
            status: document.get_str("status").ok()?.to_owned(),
            document,
        };
        Some((seq, known))
    }

    /// Whether its result is final.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "published" | "dead")
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.document.get_str(name).unwrap_or_default()
    }

    pub(super) fn key(&self) -> &str {
        self.document
            .get_str("partition_key")
            .unwrap_or_else(|_| self.text("entity_id"))
    }
}

/// One mixed settlement: what it found, and the server's time.
pub(super) struct Batch {
    pub(super) events: BTreeMap<Seq, Known>,
    pub(super) parked: BTreeMap<Seq, Document>,
    pub(super) now: DateTime,
}

impl Batch {
    /// The current state of a settlement's events. The index `seq` finds them.
    pub(super) async fn read(tx: &mut Tx<'_>, settlement: &Settlement) -> Result<Self, TxError> {
        let seqs = timestamps(all(settlement));
        let at = tx.at;
        let found = tx.aggregate(&at.events, events_of(&seqs)).await?;
        let now = found
            .first()
            .and_then(|event| event.get_datetime("now").ok().copied());
        let parked = tx
            .find(&at.parked, doc! { "_id": { "$in": seqs } }, doc! {})
            .await?;
        Ok(Self {
            events: known(found),
            parked: by_seq(parked),
            // Without an event there is nothing to write.
            now: now.unwrap_or(DateTime::MIN),
        })
    }

    /// Locks the lanes of these events, so that no other relay can take them before the transaction ends.
    pub(super) async fn fence(
        &self,
        tx: &mut Tx<'_>,
        held: &[HeldLane],
        settlement: &Settlement,
    ) -> Result<(), TxError> {
        let mut touched = lanes(settlement);
        touched.extend(self.events.values().map(|event| event.lane));
        let asked: Vec<HeldLane> = held
            .iter()
            .filter(|held| touched.contains(&held.lane))
            .copied()
            .collect();
        tx.counted(1);
        let touch = doc! { "$inc": { "settled": 1_i64 } };
        let touching = tx.at.lanes.update_many(under(&asked), touch);
        let met = touching.session(&mut tx.session).await?.matched_count;
        if met < touched.len() as u64 {
            return Err(StoreError::fenced().into());
        }
        Ok(())
    }

    /// Writes everything except the order within keys. Returns the keys whose order may have changed.
    pub(super) async fn write(&mut self, tx: &mut Tx<'_>, settlement: &Settlement) -> Result<Keys, TxError> {
        let mut events = Vec::new();
        let mut parked = Vec::new();
        let published = settlement.published_parked.iter().map(|parked| parked.seq);
        let published: Vec<Seq> = settlement.published.iter().copied().chain(published).collect();
        self.published(&published, &mut events);
        self.failed(settlement, &mut events, &mut parked);
        self.put_aside(settlement, &mut events, &mut parked);
        let letters = self.dead(settlement, &mut events);
        let at = tx.at;
        tx.update_all(&at.events, events).await?;
        tx.update_all(&at.parked, parked).await?;
        self.write_letters(tx, &letters).await?;
        self.append_deaths(tx, &letters).await?;

        let mut touched = keys(settlement);
        let leaving: Vec<Seq> = published
            .into_iter()
            .chain(settlement.dead.iter().map(|dead| dead.seq))
            .collect();
        self.leave(tx, &leaving, &mut touched).await?;
        self.after_deaths(tx, settlement).await?;
        Ok(touched)
    }

    fn published(&self, seqs: &[Seq], events: &mut Vec<Document>) {
        let open: Vec<Seq> = seqs.iter().copied().filter(|seq| self.is_open(*seq)).collect();
        if open.is_empty() {
            return;
        }
        let published = doc! { "$set": {
            "status": "published", "published_at": self.now, "last_attempt_at": self.now,
            "first_attempt_at": { "$ifNull": ["$first_attempt_at", self.now] },
        } };
        let unlocked = doc! { "$unset": ["locked_by", "locked_until"] };
        let these = doc! { "seq": { "$in": timestamps(open) } };
        events.push(doc! { "q": these, "u": [published, unlocked], "multi": true });
    }

    fn failed(&self, settlement: &Settlement, events: &mut Vec<Document>, parked: &mut Vec<Document>) {
        for failed in &settlement.failed {
            if !self.is_open(failed.parked.seq) {
                continue;
            }
            let failure = failure(&failed.failure, self.now);
            events.push(update(failed.parked.seq, doc! {
                "status": "failed", "retry_count": count(failed.attempts),
                "last_error": { "$literal": failure.get_str("error").unwrap_or_default() }, "last_error_at": self.now,
                "first_attempt_at": { "$ifNull": ["$first_attempt_at", self.now] }, "last_attempt_at": self.now,
            }));
            let due = self
                .now
                .timestamp_millis()
                .saturating_add(milliseconds(failed.retry_in));
            let mut waits = waits(&failed.parked, "failed", Some(DateTime::from_millis(due)));
            let earlier = self.failures(failed.parked.seq);
            waits.insert("failures", latest(earlier, failure));
            parked.push(park(&failed.parked, waits));
        }
    }

    fn put_aside(&self, settlement: &Settlement, events: &mut Vec<Document>, parked: &mut Vec<Document>) {
        let held = settlement.held.iter().map(|parked| (parked, "held", None));
        let delayed = settlement
            .delayed
            .iter()
            .map(|delayed| (&delayed.parked, "delayed", Some(date(delayed.available_at))));
        for (event, state, due) in held.chain(delayed) {
            if !self.is_open(event.seq) {
                continue;
            }
            events.push(update(event.seq, doc! { "status": state }));
            let mut waits = waits(event, state, due);
            waits.insert("failures", self.failures(event.seq));
            parked.push(park(event, waits));
        }
    }

    fn dead(&self, settlement: &Settlement, events: &mut Vec<Document>) -> Vec<Letter> {
        let mut letters = Vec::new();
        for dead in &settlement.dead {
            if !self.is_open(dead.seq) {
                continue;
            }
            let letter = Letter::of(dead, self.now);
            events.push(letter.death(self.now));
            letters.push(letter);
        }
        letters
    }

    /// Removes settled events from the side table, and collects their keys: the settlement has no key for an
    /// unreadable event.
    async fn leave(&self, tx: &mut Tx<'_>, seqs: &[Seq], touched: &mut Keys) -> Result<(), TxError> {
        let mut leaving = Vec::new();
        for seq in seqs {
            let Some(parked) = self.parked.get(seq) else {
                continue;
            };
            leaving.push(*seq);
            let lane = parked
                .get_i32("lane")
                .ok()
                .and_then(|lane| Lane::try_from(lane).ok());
            if let (Some(lane), Ok(key)) = (lane, parked.get_str("key")) {
                touched.insert((lane, key.to_owned()));
            }
        }
        if leaving.is_empty() {
            return Ok(());
        }
        tx.counted(1);
        let these = doc! { "_id": { "$in": timestamps(leaving) } };
        tx.at.parked.delete_many(these).session(&mut tx.session).await?;
        Ok(())
    }

    /// Whether its result is not final yet.
    pub(super) fn is_open(&self, seq: Seq) -> bool {
        self.events.get(&seq).is_some_and(|event| !event.is_over())
    }

    /// The failures that the side table has.
    pub(super) fn failures(&self, seq: Seq) -> Vec<Bson> {
        let parked = self.parked.get(&seq);
        let failures = parked.and_then(|parked| parked.get_array("failures").ok());
        failures.cloned().unwrap_or_default()
    }
}

/// The fields of events that a settlement needs.
pub(super) fn events_of(seqs: &[Bson]) -> Vec<Document> {
    vec![
        doc! { "$match": { "seq": { "$in": seqs } } },
        doc! { "$project": {
            "_id": 0, "seq": 1, "lane": 1, "status": 1, "event_id": 1, "event_type": 1, "topic": 1, "entity_id": 1,
            "partition_key": 1, "retry_count": 1, "now": "$$NOW",
            // For the event log.
            "stream": 1, "schema_version": 1, "entity_type": 1, "entity_version": 1, "project_id": 1, "user_id": 1,
            "correlation_id": format!("$headers.{}", wire::CORRELATION_ID), "created_at": 1,
        } },
    ]
}

pub(super) fn known(events: Vec<Document>) -> BTreeMap<Seq, Known> {
    events.into_iter().filter_map(Known::new).collect()
}

pub(super) fn by_seq(documents: Vec<Document>) -> BTreeMap<Seq, Document> {
    let keyed = |document: Document| Some((seq(document.get_timestamp("_id").ok()?), document));
    documents.into_iter().filter_map(keyed).collect()
}

/// As stored.
pub(super) fn failure(failure: &FailedTry, now: DateTime) -> Document {
    doc! {
        "at": now, "error": &failure.error, "sink": failure.sink.as_deref(), "relay": &*failure.relay,
    }
}

pub(super) fn update(seq: Seq, set: Document) -> Document {
    doc! { "q": { "seq": timestamp(seq) }, "u": [{ "$set": set }, { "$unset": ["locked_by", "locked_until"] }] }
}

fn waits(parked: &Parked, state: &str, due: Option<DateTime>) -> Document {
    let mut waits = doc! { "lane": i32::from(parked.lane), "key": &parked.key, "state": state };
    if let Some(due) = due {
        waits.insert("due_at", due);
    }
    waits
}

fn park(parked: &Parked, waits: Document) -> Document {
    doc! { "q": { "_id": timestamp(parked.seq) }, "u": waits, "upsert": true }
}

fn all(settlement: &Settlement) -> BTreeSet<Seq> {
    let parked = settlement.published_parked.iter().chain(&settlement.held);
    let failed = settlement.failed.iter().map(|failed| &failed.parked);
    let delayed = settlement.delayed.iter().map(|delayed| &delayed.parked);
    let parked = parked.chain(failed).chain(delayed).map(|parked| parked.seq);
    let dead = settlement.dead.iter().map(|dead| dead.seq);
    settlement
        .published
        .iter()
        .copied()
        .chain(parked)
        .chain(dead)
        .collect()
}

/// The lanes of everything that has one in the settlement.
fn lanes(settlement: &Settlement) -> BTreeSet<Lane> {
    let parked = settlement.published_parked.iter().chain(&settlement.held);
    let failed = settlement.failed.iter().map(|failed| &failed.parked);
    let delayed = settlement.delayed.iter().map(|delayed| &delayed.parked);
    let lanes = parked.chain(failed).chain(delayed).map(|parked| parked.lane);
    lanes
        .chain(settlement.dead.iter().map(|dead| dead.lane))
        .collect()
}

fn keys(settlement: &Settlement) -> Keys {
    let parked = settlement.published_parked.iter().chain(&settlement.held);
    let failed = settlement.failed.iter().map(|failed| &failed.parked);
    let died = settlement
        .dead
        .iter()
        .filter_map(|dead| Some((dead.lane, dead.key.clone()?)));
    parked
        .chain(failed)
        .map(|parked| (parked.lane, parked.key.clone()))
        .chain(died)
        .collect()
}

pub(super) fn count(attempts: u32) -> i32 {
    i32::try_from(attempts).unwrap_or(i32::MAX)
}
