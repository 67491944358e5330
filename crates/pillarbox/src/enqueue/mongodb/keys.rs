//! Serialises writers of one key: each one first updates the key's document. Of two concurrent writers, the
//! second gets a write conflict. That is a transient error: its whole transaction is retried, with a snapshot
//! that sees the first one.

use mongodb::{
    ClientSession,
    bson::{Document, doc},
};

use super::Place;
use crate::{enqueue::EnqueueError, event::Event, lane::key_hash};

/// All keys share this many documents, so their number is bounded. Two keys that share a document only wait
/// for each other.
const DOCUMENTS: u64 = 65_536;

/// Locks in the same order everywhere.
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
