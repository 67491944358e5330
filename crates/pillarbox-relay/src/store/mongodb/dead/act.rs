//! Actions on dead letters. Each runs in one transaction that blocks settlements of their lanes: both change which
//! event of a key is first.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, Timestamp, doc};
use pillarbox::{EventId, Limits};

use super::{
    super::{
        connection::Connection,
        document,
        error::TxError,
        field,
        keys::{self, Keys},
        transaction::{Tx, Work},
    },
    limited, open, within,
};
use crate::{
    dead::{Actor, DeadFilter},
    event::{Lane, Seq},
    store::StoreError,
};

/// Copies are written in chunks of about this size.
const COPY_BYTES: usize = 8 * 1024 * 1024;
/// The fields that a copy does not have, because it was never tried and is due at once.
const STATE: [&str; 11] = [
    "_id",
    "last_error",
    "last_error_at",
    "processing_started_at",
    "published_at",
    "locked_by",
    "locked_until",
    "first_attempt_at",
    "last_attempt_at",
    "available_at",
    "available_at_micros",
];

#[derive(Clone, Copy)]
pub(super) enum Act {
    Revive,
    Copy,
    Discard,
}

/// Returns the number of letters.
pub(super) async fn run(
    connection: &Connection,
    act: Act,
    filter: &DeadFilter,
    limit: usize,
    actor: &Actor,
) -> Result<usize, StoreError> {
    if limit == 0 {
        return Ok(0);
    }
    connection
        .transaction(&Action {
            act,
            filter,
            limit,
            actor,
        })
        .await
}

struct Action<'a> {
    act: Act,
    filter: &'a DeadFilter,
    limit: usize,
    actor: &'a Actor,
}

/// The selected letters, and what belongs to them.
struct Chosen {
    letters: Vec<Letter>,
    /// The server's time.
    now: DateTime,
    /// The keys whose order changes.
    keys: Keys,
}

struct Letter {
    seq: Seq,
    /// `None`: the event no longer exists.
    lane: Option<Lane>,
    key: String,
}

#[async_trait]
impl Work for Action<'_> {
    type Done = usize;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<usize, TxError> {
        let mut chosen = self.choose(tx).await?;
        match self.act {
            Act::Revive => self.revive(tx, &mut chosen).await?,
            Act::Copy => self.copy(tx, &mut chosen).await?,
            Act::Discard => {
                self.close(tx, &chosen, "discarded", &BTreeMap::new()).await?;
                unblock(tx, &mut chosen).await?;
            }
        }
        keys::release(tx, &chosen.keys).await?;
        Ok(chosen.letters.len())
    }
}

impl Action<'_> {
    /// The oldest open letters that match, with their lanes. The index `open` serves it in its order, the one on
    /// seq the events.
    async fn choose(&self, tx: &mut Tx<'_>) -> Result<Chosen, TxError> {
        let oldest = vec![
            doc! { "$match": open(self.filter) },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$limit": limited(self.limit) },
            doc! { "$project": { "key": 1, "now": "$$NOW" } },
            doc! { "$lookup": {
                "from": tx.at.events.name(),
                "localField": "_id",
                "foreignField": "seq",
                "pipeline": [{ "$project": { "_id": 0, "lane": 1 } }],
                "as": "event",
            } },
        ];
        let mut chosen = Chosen {
            letters: Vec::new(),
            now: DateTime::MIN,
            keys: Keys::new(),
        };
        for letter in tx.aggregate(&tx.at.dead, oldest).await? {
            let events = letter.get_array("event").map(Vec::as_slice).unwrap_or_default();
            let lane = events.first().and_then(Bson::as_document).map(field::lane);
            let key = field::text(&letter, "key");
            chosen.now = letter.get_datetime("now").copied().unwrap_or(chosen.now);
            chosen.keys.extend(lane.map(|lane| (lane, key.clone())));
            chosen.letters.push(Letter {
                seq: field::seq(&letter, "_id"),
                lane,
                key,
            });
        }
        keep_settlements_out(tx, &chosen.keys).await?;
        Ok(chosen)
    }

    /// Puts dead events that are to be tried again into the side table, with no attempts counted. A later step
    /// decides which event of a key is first. An event that no longer exists can't be sent.
    async fn revive(&self, tx: &mut Tx<'_>, chosen: &mut Chosen) -> Result<(), TxError> {
        chosen.letters.retain(|letter| letter.lane.is_some());
        let dead = doc! { "seq": { "$in": chosen.seqs() }, "status": "dead" };
        let failed = doc! { "$set": { "status": "failed", "retry_count": 0 } };
        tx.counted(2);
        tx.at
            .events
            .update_many(dead, failed)
            .session(&mut tx.session)
            .await?;
        let failed = doc! { "$set": { "state": "failed" } };
        let parked = doc! { "_id": { "$in": chosen.seqs() } };
        tx.at
            .parked
            .update_many(parked.clone(), failed)
            .session(&mut tx.session)
            .await?;
        let there = tx.find(&tx.at.parked, parked, doc! { "_id": 1 }).await?;
        let there: BTreeSet<Seq> = there.iter().map(|found| field::seq(found, "_id")).collect();
        let new = chosen
            .letters
            .iter()
            .filter(|letter| !there.contains(&letter.seq));
        let new = new.map(|letter| {
            doc! {
                "_id": document::timestamp(letter.seq),
                "lane": letter.lane.map(i32::from),
                "key": &letter.key,
                "state": "failed",
                "failures": [],
            }
        });
        let new: Vec<Document> = new.collect();
        if !new.is_empty() {
            tx.counted(1);
            tx.at.parked.insert_many(new).session(&mut tx.session).await?;
        }
        self.close(tx, chosen, "replayed", &BTreeMap::new()).await
    }

    /// Copies dead events under new ids, in the order of their seq. A copy of an unreadable event would only die
    /// again: its letter stays open.
    async fn copy(&self, tx: &mut Tx<'_>, chosen: &mut Chosen) -> Result<(), TxError> {
        let raw = tx.at.events.clone_with_type::<RawDocumentBuf>();
        let events = raw
            .find(doc! { "seq": { "$in": chosen.seqs() } })
            .sort(doc! { "seq": 1 });
        let mut events = events.session(&mut tx.session).await?;
        let (mut copies, mut bytes, mut ids) = (Vec::new(), 0, BTreeMap::new());
        tx.counted(1);
        while events.advance(&mut tx.session).await? {
            let Some((seq, id, copy)) = copied(&events.deserialize_current()?, chosen.now) else {
                continue;
            };
            bytes += events.current().as_bytes().len();
            ids.insert(seq, id);
            copies.push(copy);
            if bytes > COPY_BYTES {
                insert(tx, std::mem::take(&mut copies)).await?;
                bytes = 0;
            }
        }
        insert(tx, copies).await?;
        chosen.letters.retain(|letter| ids.contains_key(&letter.seq));
        self.close(tx, chosen, "replayed", &ids).await?;
        unblock(tx, chosen).await
    }

    /// Closes the letters, and records the action, its actor and its reason.
    async fn close(
        &self,
        tx: &mut Tx<'_>,
        chosen: &Chosen,
        action: &str,
        new_ids: &BTreeMap<Seq, EventId>,
    ) -> Result<(), TxError> {
        if chosen.letters.is_empty() {
            return Ok(());
        }
        tx.counted(2);
        let letters = doc! { "_id": { "$in": chosen.seqs() } };
        let closed = doc! { "$set": { "state": action } };
        tx.at
            .dead
            .update_many(letters, closed)
            .session(&mut tx.session)
            .await?;
        let done = chosen.letters.iter().map(|letter| {
            doc! {
                "seq": document::timestamp(letter.seq),
                "action": action,
                "at": chosen.now,
                "by": &self.actor.by,
                "why": &self.actor.why,
                "new_id": new_ids.get(&letter.seq).map(EventId::to_string),
            }
        });
        tx.at
            .recoveries
            .insert_many(done)
            .session(&mut tx.session)
            .await?;
        Ok(())
    }
}

impl Chosen {
    fn seqs(&self) -> Vec<Bson> {
        document::timestamps(self.letters.iter().map(|letter| letter.seq))
    }
}

/// A settlement also writes to the documents of its lanes, so if both run at once, one of them starts again.
async fn keep_settlements_out(tx: &mut Tx<'_>, keys: &Keys) -> Result<(), TxError> {
    let lanes: BTreeSet<i32> = keys.iter().map(|(lane, _)| i32::from(*lane)).collect();
    if lanes.is_empty() {
        return Ok(());
    }
    let lanes = doc! { "_id": { "$in": lanes.into_iter().collect::<Vec<_>>() } };
    tx.counted(1);
    let touch = doc! { "$inc": { "touched": 1_i64 } };
    tx.at
        .lanes
        .update_many(lanes, touch)
        .session(&mut tx.session)
        .await?;
    Ok(())
}

async fn insert(tx: &mut Tx<'_>, copies: Vec<Document>) -> Result<(), TxError> {
    if !copies.is_empty() {
        tx.counted(1);
        tx.at.events.insert_many(copies).session(&mut tx.session).await?;
    }
    Ok(())
}

/// Unblocks the keys that waited for these letters.
async fn unblock(tx: &mut Tx<'_>, chosen: &mut Chosen) -> Result<(), TxError> {
    let blocked = doc! { "_id": { "$in": chosen.seqs() }, "state": "blocked" };
    let waiting = tx
        .find(&tx.at.parked, blocked.clone(), doc! { "lane": 1, "key": 1 })
        .await?;
    let key = |found: &Document| (field::lane(found), field::text(found, "key"));
    chosen.keys.extend(waiting.iter().map(key));
    tx.counted(1);
    tx.at.parked.delete_many(blocked).session(&mut tx.session).await?;
    Ok(())
}

/// The same event as if never tried, with its seq and the copy's id. `None` if it can't be read.
fn copied(event: &RawDocumentBuf, now: DateTime) -> Option<(Seq, EventId, Document)> {
    let stored = document::event(event, within(&Limits::default())).ok()?;
    let mut copy = Document::try_from(event).ok()?;
    for name in STATE {
        copy.remove(name);
    }
    let id = EventId::new();
    copy.insert("event_id", id.to_string());
    // The server replaces it by a tick of its clock.
    copy.insert(
        "seq",
        Timestamp {
            time: 0,
            increment: 0,
        },
    );
    copy.insert("status", "pending");
    copy.insert("retry_count", 0);
    copy.insert("created_at", now);
    let mut headers = copy.get_document("headers").cloned().unwrap_or_default();
    headers.insert(pillarbox::wire::REPLAY_OF, stored.event.id.to_string());
    copy.insert("headers", headers);
    Some((stored.seq, id, copy))
}
