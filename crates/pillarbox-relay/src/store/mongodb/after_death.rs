//! Writes dead letters, and applies `after_death` to the key of an event that died.

use std::collections::BTreeMap;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{
    batch::{Batch, Known, by_seq, count, events_of, failure, known, update},
    document::{timestamp, timestamps},
    error::TxError,
    transaction::Tx,
};
use crate::{
    dead::{FAILURES_MAX, SUPERSEDED, superseded_fingerprint},
    event::Seq,
    route::AfterDeath,
    settlement::{Dead, DeadReason, FailedTry, Settlement},
};

/// A dead letter before it is written.
pub(super) struct Letter {
    pub(super) seq: Seq,
    pub(super) reason: DeadReason,
    pub(super) attempts: u32,
    fingerprint: String,
    tried: bool,
    pub(super) failure: Document,
    state: &'static str,
    /// Whether the event log records the death.
    pub(super) logged: bool,
}

impl Letter {
    pub(super) fn of(dead: &Dead, now: DateTime) -> Self {
        Self {
            seq: dead.seq,
            reason: dead.reason,
            attempts: dead.attempts,
            fingerprint: dead.fingerprint(),
            tried: dead.tried,
            failure: failure(&dead.failure, now),
            state: "open",
            logged: dead.logged,
        }
    }

    /// What the event's own document records about its death.
    pub(super) fn death(&self, now: DateTime) -> Document {
        let mut death = doc! {
            "status": "dead", "retry_count": count(self.attempts),
            "last_error": { "$literal": self.error() }, "last_error_at": now,
        };
        if self.attempts > 0 {
            death.insert("first_attempt_at", doc! { "$ifNull": ["$first_attempt_at", now] });
            death.insert("last_attempt_at", now);
        }
        update(self.seq, death)
    }

    pub(super) fn error(&self) -> &str {
        self.failure.get_str("error").unwrap_or_default()
    }

    /// The failed attempts, with the last one.
    pub(super) fn failures(&self, earlier: Vec<Bson>) -> Vec<Bson> {
        match self.tried {
            true => latest(earlier, self.failure.clone()),
            false => earlier,
        }
    }

    fn written(&self, event: &Known, failures: Vec<Bson>, now: DateTime) -> Document {
        let failures = self.failures(failures);
        let letter = doc! {
            "event_id": id(event.text("event_id")), "topic": event.text("topic"), "key": event.key(),
            "event_type": event.text("event_type"), "reason": self.reason.as_str(), "error": self.error(),
            "attempts": count(self.attempts), "sink": self.failure.get("sink").cloned(),
            "relay": self.failure.get("relay").cloned(), "fingerprint": &self.fingerprint, "failures": failures,
            "died_at": now, "state": self.state,
        };
        doc! { "q": { "_id": timestamp(self.seq) }, "u": { "$set": letter }, "upsert": true }
    }
}

/// Adds a failure and keeps the latest ones.
pub(super) fn latest(mut failures: Vec<Bson>, failure: Document) -> Vec<Bson> {
    failures.push(failure.into());
    let surplus = failures.len().saturating_sub(FAILURES_MAX);
    failures.split_off(surplus)
}

/// Cut to the length that an id can have.
fn id(stored: &str) -> &str {
    super::document::cut(stored)
}

impl Batch {
    pub(super) async fn write_letters(&self, tx: &mut Tx<'_>, letters: &[Letter]) -> Result<(), TxError> {
        let written = letters.iter().filter_map(|letter| {
            let event = self.events.get(&letter.seq)?;
            Some(letter.written(event, self.failures(letter.seq), self.now))
        });
        let written = written.collect();
        let at = tx.at;
        tx.update_all(&at.dead, written).await?;
        Ok(())
    }

    /// Applies `after_death` to the events behind dead ones.
    pub(super) async fn after_deaths(
        &mut self,
        tx: &mut Tx<'_>,
        settlement: &Settlement,
    ) -> Result<(), TxError> {
        let with = |after: AfterDeath| -> Vec<Seq> {
            let dead = settlement.dead.iter().filter(|dead| dead.after == after);
            // Published events stay published.
            let died = |seq: &Seq| {
                self.events
                    .get(seq)
                    .is_some_and(|event| event.status != "published")
            };
            dead.map(|dead| dead.seq).filter(died).collect()
        };
        let (blocking, latest) = (with(AfterDeath::Block), with(AfterDeath::Latest));
        if !blocking.is_empty() {
            self.block(tx, &blocking).await?;
        }
        match settlement.dead.first() {
            Some(first) if !latest.is_empty() => self.supersede(tx, &latest, &first.failure).await,
            _ => Ok(()),
        }
    }

    /// Keeps dead events that block their keys in the side table while their letters are open.
    async fn block(&self, tx: &mut Tx<'_>, dead: &[Seq]) -> Result<(), TxError> {
        let at = tx.at;
        let open = doc! { "_id": { "$in": timestamps(dead.iter().copied()) }, "state": "open" };
        let open = tx.find(&at.dead, open, doc! { "_id": 1, "key": 1 }).await?;
        let blocks = by_seq(open).into_iter().filter_map(|(seq, letter)| {
            let event = self.events.get(&seq)?;
            let blocked = doc! {
                "lane": i32::from(event.lane), "key": letter.get_str("key").ok()?, "state": "blocked",
                "failures": Bson::Array(Vec::new()),
            };
            Some(doc! {
                "q": { "_id": timestamp(seq) }, "u": { "$setOnInsert": blocked }, "upsert": true,
            })
        });
        let blocks = blocks.collect();
        tx.update_all(&at.parked, blocks).await?;
        Ok(())
    }

    /// Keeps only the newest of the events that wait behind these dead ones and have their topic. `death` gives the
    /// relay.
    async fn supersede(&mut self, tx: &mut Tx<'_>, dead: &[Seq], death: &FailedTry) -> Result<(), TxError> {
        let at = tx.at;
        let behind = dead.iter().filter_map(|seq| {
            let event = self.events.get(seq)?;
            let key = event.key();
            Some(doc! { "lane": i32::from(event.lane), "key": key, "_id": { "$gt": timestamp(*seq) } })
        });
        let behind: Vec<Document> = behind.collect();
        let waiting = doc! { "$or": behind, "state": { "$in": ["failed", "held"] } };
        let waiting = by_seq(tx.find(&at.parked, waiting, doc! {}).await?);
        let seqs = timestamps(waiting.keys().copied());
        let events = known(tx.aggregate(&at.events, events_of(&seqs)).await?);
        let older = older(dead, &self.events, &events);
        if older.is_empty() {
            return Ok(());
        }
        let letters: Vec<Letter> = older
            .iter()
            .map(|(seq, newest)| self.superseded(*seq, newest, &events, death))
            .collect();
        self.events.extend(events);
        self.parked.extend(waiting);
        let deaths = letters.iter().map(|letter| letter.death(self.now)).collect();
        tx.update_all(&at.events, deaths).await?;
        self.write_letters(tx, &letters).await?;
        let told: Vec<Document> = older
            .keys()
            .map(|seq| {
                doc! {
                    "seq": timestamp(*seq), "action": "discarded", "at": self.now, "by": &*death.relay,
                    "why": "a newer event tells the latest state",
                }
            })
            .collect();
        tx.counted(2);
        at.recoveries.insert_many(told).session(&mut tx.session).await?;
        let these = doc! { "_id": { "$in": timestamps(older.keys().copied()) } };
        at.parked.delete_many(these).session(&mut tx.session).await?;
        Ok(())
    }

    fn superseded(&self, seq: Seq, newest: &str, events: &BTreeMap<Seq, Known>, death: &FailedTry) -> Letter {
        let why = FailedTry {
            error: format!("{SUPERSEDED} \"{newest}\""),
            sink: None,
            relay: death.relay.clone(),
        };
        let attempts = events
            .get(&seq)
            .and_then(|event| event.document.get_i32("retry_count").ok());
        Letter {
            seq,
            reason: DeadReason::PermanentFailure,
            attempts: attempts.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            fingerprint: superseded_fingerprint(),
            tried: false,
            failure: failure(&why, self.now),
            state: "discarded",
            logged: false,
        }
    }
}

/// The waiting events that are not the newest of their topic behind a dead one, each with the newest one's id.
fn older(dead: &[Seq], died: &BTreeMap<Seq, Known>, waiting: &BTreeMap<Seq, Known>) -> BTreeMap<Seq, String> {
    let mut older = BTreeMap::new();
    for (seq, event) in dead.iter().filter_map(|seq| Some((*seq, died.get(seq)?))) {
        let same = |other: &&Known| {
            other.lane == event.lane
                && other.key() == event.key()
                && other.text("topic") == event.text("topic")
        };
        let mut behind: Vec<(Seq, &Known)> = waiting
            .range(seq + 1..)
            .filter(|(_, other)| same(other) && !other.is_over())
            .map(|(seq, other)| (*seq, other))
            .collect();
        if let Some((_, newest)) = behind.pop() {
            let newest = newest.text("event_id");
            older.extend(behind.iter().map(|(seq, _)| (*seq, newest.to_owned())));
        }
    }
    older
}
