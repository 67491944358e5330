//! Discovery assumes that no event up to a lane's low mark is pending or will be. A restored collection contains
//! events with old seqs, and a cluster restored from a backup may assign seqs below the low marks. The index
//! `pending` shows this at once: an event that is pending at or below the low mark of its lane would never be
//! found. Such lanes are read again from before it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use mongodb::{
    bson::{Document, doc},
    options::Hint,
};
use tokio::time::Instant;

use super::{
    connection::{Collections, Connection},
    document::{seq, timestamp},
    field,
};
use crate::{
    event::{Lane, Seq},
    store::StoreError,
};

/// How often a running relay checks again.
const AGAIN: Duration = Duration::from_secs(5);
/// The most events that one check reads. The next check finds the others.
const EVENTS_MAX: i64 = 10_000;

#[derive(Default)]
pub(super) struct Assumptions(Mutex<Option<Instant>>);

impl Assumptions {
    pub(super) async fn check(&self, connection: &Connection) -> Result<(), StoreError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let at = connection.collections().await?;
        let marks = marks(connection, at).await?;
        let highest = marks.values().copied().max().unwrap_or(0);
        if highest == 0 {
            return Ok(());
        }
        clock(connection, at, highest).await?;
        below(connection, at, &marks, highest).await
    }

    /// The same check for a running relay, unless the last check is recent.
    pub(super) async fn check_again(&self, connection: &Connection) -> Result<(), StoreError> {
        let looked_at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looked_at.is_some_and(|at| at.elapsed() < AGAIN) {
            return Ok(());
        }
        self.check(connection).await
    }
}

async fn marks(connection: &Connection, at: &Collections) -> Result<BTreeMap<Lane, Seq>, StoreError> {
    let lanes = at.lanes.find(doc! {}).projection(doc! { "low_mark": 1 });
    let lanes = connection.all(lanes).await?;
    Ok(lanes
        .iter()
        .filter_map(|lane| {
            let number = Lane::try_from(lane.get_i32("_id").ok()?).ok()?;
            Some((number, field::number(lane, "low_mark")))
        })
        .collect())
}

/// A cluster whose clock is behind the low marks assigns seqs below them.
async fn clock(connection: &Connection, at: &Collections, highest: Seq) -> Result<(), StoreError> {
    let hello = connection
        .run(at.database.run_command(doc! { "hello": 1 }))
        .await?;
    let Ok(now) = hello.get_timestamp("operationTime").map(seq) else {
        return Ok(());
    };
    if now >= highest {
        return Ok(());
    }
    tracing::warn!(
        "the cluster's clock is behind the settled events: reading the outbox again from its first event"
    );
    let ahead = doc! { "low_mark": { "$gt": now } };
    let start_over = doc! { "$set": { "low_mark": 0_i64 }, "$inc": { "epoch": 1_i64 } };
    connection.run(at.lanes.update_many(ahead, start_over)).await?;
    Ok(())
}

async fn below(
    connection: &Connection,
    at: &Collections,
    marks: &BTreeMap<Lane, Seq>,
    highest: Seq,
) -> Result<(), StoreError> {
    let pending = at
        .events
        .find(doc! { "status": "pending", "seq": { "$lte": timestamp(highest) } })
        .projection(doc! { "_id": 0, "seq": 1, "lane": 1 })
        .sort(doc! { "seq": 1 })
        .hint(Hint::Name("pending".into()))
        .limit(EVENTS_MAX);
    let pending: Vec<Document> = connection.all(pending).await?;
    let mut lowest: BTreeMap<Lane, Seq> = BTreeMap::new();
    for event in &pending {
        let (lane, seq) = (field::lane(event), field::seq(event, "seq"));
        if marks.get(&lane).is_some_and(|mark| seq <= *mark) {
            lowest.entry(lane).or_insert(seq);
        }
    }
    for (lane, seq) in lowest {
        // Another relay may have lowered the mark since. It never rises above a pending event.
        let lane = doc! { "_id": i32::from(lane), "low_mark": { "$gte": seq } };
        let lower = doc! { "$set": { "low_mark": seq - 1 }, "$inc": { "epoch": 1_i64 } };
        let lowered = connection.run(at.lanes.update_one(lane, lower)).await?;
        if lowered.modified_count > 0 {
            tracing::warn!(
                "an event is pending at a seq that counted as settled, perhaps restored from a backup: reading again from there"
            );
        }
    }
    Ok(())
}
