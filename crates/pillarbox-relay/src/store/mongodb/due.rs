//! The events of the side table, and which of them may be tried now.

use std::{collections::HashMap, time::Duration};

use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use pillarbox::lane::key_hash;

use super::{
    connection::Connection,
    document::{TOO_LARGE, event, fetched_bytes, seq, seq_of, timestamp, timestamps},
};
use crate::{
    event::{Lane, Seq},
    store::{Due, DueEvent, DuePlace, HeldLane, PageLimit, StoreError, limits},
};

/// Events read at once: few enough for memory even at their largest size.
const EVENTS_AT_ONCE: usize = 64;
/// The most bytes that a document may have beside the event.
const REST_BYTES_MAX: usize = 64 * 1024;
/// The least number of events returned for each key, if it has as many.
const CHAIN_MIN: usize = 8;

pub(super) async fn due(
    connection: &Connection,
    held: &[HeldLane],
    after: Option<DuePlace>,
    limit: PageLimit,
) -> Result<Due, StoreError> {
    let mut due = Due::default();
    if held.is_empty() {
        return Ok(due);
    }
    let now = connection.now().await?;
    let heads = heads(connection, held, after, limit, now).await?;
    let last = heads.last().map(|head| head.place);
    let members = members(connection, heads, limit).await?;
    let mut rest = members.as_slice();
    let (mut taken, mut bytes) = (0, 0);
    'page: while !rest.is_empty() {
        let (these, others) = rest.split_at(rest.len().min(EVENTS_AT_ONCE));
        rest = others;
        let documents = documents(connection, these, limit).await?;
        for member in these {
            let document = documents.get(&member.seq);
            bytes += document.map_or(0, |document| fetched_bytes(document, limit));
            if taken > 0 && (bytes > limit.bytes || taken >= limit.events) {
                due.next = Some(Duration::ZERO);
                break 'page;
            }
            taken += 1;
            due.more_after = (Some(member.place) != last).then_some(member.place);
            match document.map(|document| event(document, limit)) {
                Some(Ok(event)) => due.events.push(DueEvent {
                    event,
                    delayed: member.delayed,
                }),
                Some(Err(unreadable)) => due.unreadable.push(unreadable),
                // It is gone: settled by the lane's current holder, or deleted by hand.
                None => {}
            }
        }
    }
    if due.next.is_none() {
        due.next = next(connection, held, now).await?;
    }
    due.group_by_key();
    Ok(due)
}

/// The keys of these lanes that have failing, held or blocking dead events. The index `key` covers the query.
pub(super) async fn blocked_keys(
    connection: &Connection,
    held: &[HeldLane],
) -> Result<Vec<(Lane, u64)>, StoreError> {
    let at = connection.collections().await?;
    let pipeline = [
        doc! { "$match": { "lane": { "$in": lanes(held) }, "state": { "$ne": "delayed" } } },
        doc! { "$group": { "_id": { "lane": "$lane", "key": "$key" } } },
    ];
    let found = connection.all(at.parked.aggregate(pipeline)).await?;
    let read = |found: &Document| {
        let id = found.get_document("_id").ok()?;
        let lane = Lane::try_from(id.get_i32("lane").ok()?).ok()?;
        Some((lane, key_hash(id.get_str("key").ok()?)))
    };
    Ok(found.iter().filter_map(read).collect())
}

struct Member {
    seq: Seq,
    delayed: bool,
    /// The place of its head.
    place: DuePlace,
}

/// Each failing head with the events behind it, and delayed events alone.
async fn members(
    connection: &Connection,
    heads: Vec<Member>,
    limit: PageLimit,
) -> Result<Vec<Member>, StoreError> {
    let failing: Vec<Bson> = heads
        .iter()
        .filter(|head| !head.delayed)
        .map(|head| timestamp(head.seq).into())
        .collect();
    let length = CHAIN_MIN.max(limit.events / heads.len().max(1));
    let mut chains = match failing.is_empty() {
        true => HashMap::new(),
        false => chains(connection, failing, length).await?,
    };
    let mut members = Vec::new();
    for head in heads {
        match chains.remove(&head.seq) {
            Some(chain) => members.extend(chain.into_iter().map(|seq| Member { seq, ..head })),
            None if head.delayed => members.push(head),
            None => {}
        }
    }
    Ok(members)
}

/// Due events, the longest due first: one more than a page has, which shows that there is more. The index `due_seq`
/// serves it.
async fn heads(
    connection: &Connection,
    held: &[HeldLane],
    after: Option<DuePlace>,
    limit: PageLimit,
    now: DateTime,
) -> Result<Vec<Member>, StoreError> {
    let at = connection.collections().await?;
    let mut ready = doc! { "due_at": { "$lte": now }, "lane": { "$in": lanes(held) } };
    if let Some(after) = after {
        let due_at = DateTime::from_millis(after.due_at);
        ready.insert("due_at", doc! { "$gte": due_at, "$lte": now });
        let seen = doc! { "due_at": due_at, "_id": { "$lte": timestamp(after.seq) } };
        ready.insert("$nor", vec![seen]);
    }
    let ready = at
        .parked
        .find(ready)
        .projection(doc! { "due_at": 1, "state": 1 })
        .sort(doc! { "due_at": 1, "_id": 1 })
        .limit(i64::try_from(limit.events.max(1)).map_or(i64::MAX, |events| events.saturating_add(1)));
    let read = |parked: &Document| {
        let seq = seq(parked.get_timestamp("_id").ok()?);
        let due_at = parked.get_datetime("due_at").ok()?.timestamp_millis();
        Some(Member {
            seq,
            delayed: parked.get_str("state").ok()? == "delayed",
            place: DuePlace { due_at, seq },
        })
    };
    Ok(connection.all(ready).await?.iter().filter_map(read).collect())
}

/// Each head with the events behind it, up to a blocking dead event. The index `key` serves each lookup.
async fn chains(
    connection: &Connection,
    heads: Vec<Bson>,
    length: usize,
) -> Result<HashMap<Seq, Vec<Seq>>, StoreError> {
    let at = connection.collections().await?;
    let behind = [
        doc! { "$match": { "$expr": { "$and": [
            { "$eq": ["$lane", "$$lane"] }, { "$eq": ["$key", "$$key"] }, { "$gte": ["$_id", "$$head"] },
        ] } } },
        doc! { "$match": { "state": { "$ne": "delayed" } } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": i64::try_from(length).unwrap_or(i64::MAX) },
        doc! { "$project": { "_id": 1, "state": 1 } },
    ];
    let pipeline = [
        doc! { "$match": { "_id": { "$in": heads } } },
        doc! { "$lookup": {
            "from": at.parked.name(), "let": { "lane": "$lane", "key": "$key", "head": "$_id" },
            "pipeline": behind.to_vec(), "as": "chain",
        } },
        doc! { "$project": { "_id": 1, "chain": 1 } },
    ];
    let found = connection.all(at.parked.aggregate(pipeline)).await?;
    let read = |found: &Document| {
        let head = seq(found.get_timestamp("_id").ok()?);
        let chain = found
            .get_array("chain")
            .ok()?
            .iter()
            .filter_map(Bson::as_document);
        let chain = chain
            .take_while(|parked| parked.get_str("state").is_ok_and(|state| state != "blocked"))
            .filter_map(|parked| parked.get_timestamp("_id").ok().map(seq));
        Some((head, chain.collect()))
    };
    Ok(found.iter().filter_map(read).collect())
}

async fn documents(
    connection: &Connection,
    members: &[Member],
    limit: PageLimit,
) -> Result<HashMap<Seq, RawDocumentBuf>, StoreError> {
    let at = connection.collections().await?;
    let these = doc! { "seq": { "$in": timestamps(members.iter().map(|member| member.seq)) } };
    // With room for what the relay itself wrote, such as the last error. A larger document is not sent.
    let most = limits::row_bytes_max(limit.payload_bytes_max).saturating_add(REST_BYTES_MAX);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let size = doc! { "$bsonSize": "$$ROOT" };
    let instead = doc! { "seq": "$seq", "lane": "$lane", TOO_LARGE: size.clone() };
    let sized = [
        doc! { "$match": these },
        doc! { "$replaceWith": { "$cond": [{ "$lte": [size, most] }, "$$ROOT", instead] } },
    ];
    let found = at.events.aggregate(sized).with_type::<RawDocumentBuf>();
    let found = connection.all(found).await?;
    Ok(found
        .into_iter()
        .map(|document| (seq_of(&document), document))
        .collect())
}

async fn next(
    connection: &Connection,
    held: &[HeldLane],
    now: DateTime,
) -> Result<Option<Duration>, StoreError> {
    let at = connection.collections().await?;
    let later = doc! { "due_at": { "$gt": now }, "lane": { "$in": lanes(held) } };
    let later = at.parked.find_one(later).sort(doc! { "due_at": 1 });
    let next = connection.run(later).await?;
    Ok(next.and_then(|next| {
        let due = next.get_datetime("due_at").ok()?.timestamp_millis();
        let wait = due.saturating_sub(now.timestamp_millis());
        Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
    }))
}

fn lanes(held: &[HeldLane]) -> Vec<i32> {
    held.iter().map(|held| i32::from(held.lane)).collect()
}
