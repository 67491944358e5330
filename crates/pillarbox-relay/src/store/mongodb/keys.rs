//! The order within keys that have events in the side table.

use std::collections::{BTreeMap, BTreeSet};

use mongodb::bson::{Bson, Document, doc};

use super::{error::TxError, transaction::Tx};
use crate::event::Lane;

pub(super) type Keys = BTreeSet<(Lane, String)>;

/// Keys in one query.
const KEYS_MAX: usize = 500;

/// Orders the keys again: of each key, only the first event that is not delayed has a due_at, and it has none if it
/// is a blocking dead event. Returns the keys that have no failing, held or blocking dead event left. The index
/// `key` covers the query, which reads all waiting events of these keys.
pub(super) async fn release(tx: &mut Tx<'_>, keys: &Keys) -> Result<Vec<(Lane, String)>, TxError> {
    let at = tx.at;
    let mut free = Vec::new();
    let keys: Vec<&(Lane, String)> = keys.iter().collect();
    for keys in keys.chunks(KEYS_MAX) {
        let waiting = tx.aggregate(&at.parked, waiting(keys)).await?;
        let mut heads: BTreeMap<(Lane, String), &Document> = waiting
            .iter()
            .filter_map(|head| Some((key(head)?, head)))
            .collect();
        let mut updates = Vec::new();
        for &key in keys {
            match heads.remove(key) {
                None => free.push(key.clone()),
                Some(head) => put_in_order(head, &mut updates),
            }
        }
        tx.update_all(&at.parked, updates).await?;
    }
    Ok(free)
}

/// For each key: the first event that is not delayed, and those that have a due_at.
fn waiting(keys: &[&(Lane, String)]) -> Vec<Document> {
    let keys: Vec<Document> = keys
        .iter()
        .map(|(lane, key)| doc! { "lane": i32::from(*lane), "key": key })
        .collect();
    vec![
        doc! { "$match": { "$or": keys, "state": { "$ne": "delayed" } } },
        doc! { "$project": { "_id": 1, "lane": 1, "key": 1, "state": 1, "due_at": 1 } },
        doc! { "$sort": { "lane": 1, "key": 1, "_id": 1 } },
        doc! { "$group": {
            "_id": { "lane": "$lane", "key": "$key" },
            "head": { "$first": "$_id" },
            "state": { "$first": "$state" },
            "due": { "$push": { "$cond": [{ "$gt": ["$due_at", null] }, "$_id", "$$REMOVE"] } },
        } },
    ]
}

fn key(head: &Document) -> Option<(Lane, String)> {
    let id = head.get_document("_id").ok()?;
    let lane = Lane::try_from(id.get_i32("lane").ok()?).ok()?;
    Some((lane, id.get_str("key").ok()?.to_owned()))
}

fn put_in_order(key: &Document, updates: &mut Vec<Document>) {
    let head = key.get("head").cloned().unwrap_or(Bson::Null);
    let due = key.get_array("due").map(Vec::as_slice).unwrap_or_default();
    let late: Vec<Bson> = due.iter().filter(|seq| **seq != head).cloned().collect();
    if !late.is_empty() {
        updates.push(doc! {
            "q": { "_id": { "$in": late } }, "u": { "$unset": { "due_at": "" } }, "multi": true,
        });
    }
    if !due.contains(&head) && key.get_str("state").is_ok_and(|state| state != "blocked") {
        updates.push(doc! { "q": { "_id": head }, "u": { "$currentDate": { "due_at": true } } });
    }
}
