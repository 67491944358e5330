//! Leases on lanes, by the server's clock. An update of a lane that meets a concurrent one checks the lane again,
//! so two relays never both get the same lane.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use mongodb::bson::{Bson, DateTime, Document, doc};
use tokio::time::Instant;

use super::{connection::Connection, field, milliseconds};
use crate::{
    event::Lane,
    store::{Census, HeldLane, RelayId, StoreError, Trouble, trouble},
};

const LANES: usize = pillarbox::lane::LANES as usize;
/// How often to look for free lanes in one call. If other relays take them meanwhile, the next heartbeat tries
/// again.
const LOOKS_MAX: usize = 4;

/// What this process knows about its leases: until when no other relay can have taken the lane. Measured by its own
/// clock, from before the request. It saves plain settlements a read of the lanes.
pub(super) struct Leases(Mutex<[Option<(i64, Instant)>; LANES]>);

impl Default for Leases {
    fn default() -> Self {
        Self(Mutex::new([None; LANES]))
    }
}

impl Leases {
    /// Whether all of these are certainly held under their epochs.
    pub(super) fn cover(&self, held: &[HeldLane]) -> bool {
        let now = Instant::now();
        let leases = self.lock();
        held.iter().all(|held| {
            leases[usize::from(held.lane)].is_some_and(|(epoch, until)| epoch == held.epoch && now < until)
        })
    }

    fn set(&self, lanes: impl IntoIterator<Item = (Lane, i64)>, until: Instant) {
        let mut leases = self.lock();
        for (lane, epoch) in lanes {
            leases[usize::from(lane)] = Some((epoch, until));
        }
    }

    fn forget(&self, lanes: impl IntoIterator<Item = Lane>) {
        let mut leases = self.lock();
        for lane in lanes {
            leases[usize::from(lane)] = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Option<(i64, Instant)>; LANES]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn heartbeat(
    connection: &Connection,
    leases: &Leases,
    relay: RelayId,
    name: &str,
    ttl: Duration,
    held: &[HeldLane],
) -> Result<Census, StoreError> {
    let (at, sent) = (connection.collections().await?, Instant::now());
    let me = relay.to_string();
    let alive = doc! { "$set": {
        "name": { "$literal": name }, "seen_at": "$$NOW", "expires_at": { "$add": ["$$NOW", milliseconds(ttl)] },
    } };
    let beat = at
        .relays
        .update_one(doc! { "_id": &me }, vec![alive])
        .upsert(true);
    connection.run(beat).await?;
    let gone = doc! { "$expr": { "$lte": ["$expires_at", "$$NOW"] } };
    connection.run(at.relays.delete_many(gone)).await?;
    let mut renewed = Vec::new();
    if !held.is_empty() {
        let mine = mine(&me, held);
        let renew = doc! { "$set": {
            "lease_until": { "$add": ["$$NOW", milliseconds(ttl)] }, "low_mark": higher_mark(held),
        } };
        connection
            .run(at.lanes.update_many(mine.clone(), vec![renew]))
            .await?;
        let lanes = at.lanes.find(mine).sort(doc! { "_id": 1 });
        renewed = connection.all(lanes).await?.iter().filter_map(lane).collect();
    }
    leases.forget(held.iter().map(|held| held.lane));
    leases.set(renewed.iter().map(|held| (held.lane, held.epoch)), sent + ttl);
    let relays = connection
        .all(at.relays.find(doc! {}).projection(doc! { "_id": 1 }))
        .await?;
    let before = |relay: &&Document| relay.get_str("_id").is_ok_and(|id| id < me.as_str());
    Ok(Census {
        relays: number(relays.len()).max(1),
        rank: number(relays.iter().filter(before).count()),
        held: renewed.iter().map(|held| held.lane).collect(),
    })
}

pub(super) async fn take(
    connection: &Connection,
    leases: &Leases,
    relay: RelayId,
    count: usize,
    ttl: Duration,
) -> Result<Vec<HeldLane>, StoreError> {
    let at = connection.collections().await?;
    let me = relay.to_string();
    let mut held: Vec<HeldLane> = Vec::new();
    for _ in 0..LOOKS_MAX {
        let wanted = i64::try_from(count - held.len()).unwrap_or(i64::MAX);
        let sent = Instant::now();
        let looking = at.lanes.find(free()).projection(doc! { "_id": 1 });
        let found = connection
            .all(looking.sort(doc! { "_id": 1 }).limit(wanted))
            .await?;
        let found: Vec<Bson> = found
            .into_iter()
            .filter_map(|mut lane| lane.remove("_id"))
            .collect();
        if found.is_empty() {
            break;
        }
        let mut still_free = free();
        still_free.insert("_id", doc! { "$in": &found });
        let take = doc! { "$set": {
            "owner": &me, "epoch": { "$add": ["$epoch", 1_i64] },
            "lease_until": { "$add": ["$$NOW", milliseconds(ttl)] },
        } };
        connection
            .run(at.lanes.update_many(still_free, vec![take]))
            .await?;
        let taken = doc! { "_id": { "$in": found }, "owner": &me };
        let taken = connection
            .all(at.lanes.find(taken).sort(doc! { "_id": 1 }))
            .await?;
        let taken: Vec<HeldLane> = taken.iter().filter_map(lane).collect();
        leases.set(taken.iter().map(|held| (held.lane, held.epoch)), sent + ttl);
        held.extend(taken);
        if held.len() >= count {
            break;
        }
    }
    Ok(held)
}

pub(super) async fn release(
    connection: &Connection,
    leases: &Leases,
    relay: RelayId,
    held: &[HeldLane],
) -> Result<(), StoreError> {
    leases.forget(held.iter().map(|held| held.lane));
    if held.is_empty() {
        return Ok(());
    }
    let at = connection.collections().await?;
    let release = doc! { "$set": {
        "owner": null, "lease_until": DateTime::from_millis(0), "low_mark": higher_mark(held),
    } };
    let mine = mine(&relay.to_string(), held);
    connection.run(at.lanes.update_many(mine, vec![release])).await?;
    Ok(())
}

pub(super) async fn leave(
    connection: &Connection,
    leases: &Leases,
    relay: RelayId,
) -> Result<(), StoreError> {
    let at = connection.collections().await?;
    let me = relay.to_string();
    leases.forget(0..=Lane::MAX);
    let free = doc! { "$set": { "owner": null, "lease_until": DateTime::from_millis(0) } };
    connection
        .run(at.lanes.update_many(doc! { "owner": &me }, free))
        .await?;
    connection.run(at.relays.delete_one(doc! { "_id": me })).await?;
    Ok(())
}

pub(super) async fn report(
    connection: &Connection,
    relay: RelayId,
    troubles: &[Trouble],
) -> Result<(), StoreError> {
    let at = connection.collections().await?;
    let troubles = doc! { "$set": { "troubles": trouble::to_json(troubles) } };
    let report = at.relays.update_one(doc! { "_id": relay.to_string() }, troubles);
    connection.run(report).await.map(drop)
}

/// Reads the whole of a small collection.
pub(super) async fn troubles(connection: &Connection) -> Result<Vec<Trouble>, StoreError> {
    let at = connection.collections().await?;
    let living = doc! { "$expr": { "$gt": ["$expires_at", "$$NOW"] } };
    let living: Vec<Document> = connection.all(at.relays.find(living)).await?;
    let troubles = |relay| trouble::from_json(&field::text(relay, "troubles"));
    Ok(living.iter().flat_map(troubles).collect())
}

/// Lanes that no relay holds or whose lease has expired.
fn free() -> Document {
    doc! { "$or": [{ "owner": null }, { "$expr": { "$lte": ["$lease_until", "$$NOW"] } }] }
}

/// The lanes among these that this relay holds under their epochs.
fn mine(relay: &str, held: &[HeldLane]) -> Document {
    doc! { "owner": relay, "$expr": { "$eq": ["$epoch", of_its_lane(held, -1, |held| held.epoch)] } }
}

/// A filter for lanes that still have these epochs, whatever their owner.
pub(super) fn under(held: &[HeldLane]) -> Document {
    let lanes: Vec<i32> = held.iter().map(|held| i32::from(held.lane)).collect();
    doc! {
        "_id": { "$in": lanes },
        "$expr": { "$eq": ["$epoch", of_its_lane(held, -1, |held| held.epoch)] },
    }
}

fn higher_mark(held: &[HeldLane]) -> Document {
    doc! { "$max": ["$low_mark", of_its_lane(held, 0, |held| held.low_mark)] }
}

/// A number for each lane, selected by the lane: one update serves all of them.
fn of_its_lane(held: &[HeldLane], other: i64, number: impl Fn(&HeldLane) -> i64) -> Document {
    let mut numbers = vec![other; LANES];
    for held in held {
        numbers[usize::from(held.lane)] = number(held);
    }
    doc! { "$arrayElemAt": [numbers, "$_id"] }
}

fn lane(lane: &Document) -> Option<HeldLane> {
    Some(HeldLane {
        lane: Lane::try_from(lane.get_i32("_id").ok()?).ok()?,
        epoch: lane.get_i64("epoch").ok()?,
        low_mark: lane.get_i64("low_mark").ok()?,
    })
}

fn number(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
