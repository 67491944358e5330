//! Writers of one key, one after the other: each changes the key's document first. Of two at once, the second gets a write
//! conflict, a transient error with which its whole transaction is tried again, in a snapshot that sees the first.

use mongodb::{
    ClientSession,
    bson::{Document, doc},
};

use super::Place;
use crate::{enqueue::EnqueueError, event::Event, lane::key_hash};

/// Keys share this many documents, so that there never are more; two keys that share one only wait for each other.
const DOCUMENTS: u64 = 65_536;

/// In an order that is the same for all.
pub(super) async fn touch(
    at: &Place,
    session: &mut ClientSession,
    events: &[Event],
) -> Result<(), EnqueueError> {
    let mut ids: Vec<i64> = events
        .iter()
        .map(|event| (key_hash(event.key()) % DOCUMENTS) as i64)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let keys = at.database.collection::<Document>(&at.beside("keys"));
    for id in ids {
        keys.update_one(doc! { "_id": id }, doc! { "$inc": { "n": 1_i64 } })
            .upsert(true)
            .session(&mut *session)
            .await?;
    }
    Ok(())
}
