//! The kinds of the latest events. The index on seq serves it, from its end; no payload is sent except the
//! examples.

use std::collections::HashMap;

use mongodb::bson::{Bson, Document, RawDocumentBuf, Timestamp, doc};

use super::{connection::Connection, document, field};
use crate::{
    catalog::{EXAMPLE_BYTES_MAX, KINDS_MAX, Kind, Look},
    event::{Seq, StoredEvent},
    store::{PageLimit, StoreError},
};

/// The most bytes that an event may have beside its payload to be an example.
const REST_BYTES_MAX: usize = 64 * 1024;

pub(super) async fn look(connection: &Connection, last: usize) -> Result<Look, StoreError> {
    let at = connection.collections().await?;
    let latest = [
        doc! { "$match": { "seq": { "$gt": Timestamp { time: 0, increment: 0 } } } },
        doc! { "$sort": { "seq": -1 } },
        doc! { "$limit": i64::try_from(last).unwrap_or(i64::MAX) },
    ];
    let is_date = doc! { "$eq": [{ "$type": "$created_at" }, "date"] };
    let created_at = doc! { "$cond": [is_date, "$created_at", null] };
    let all = doc! { "$group": { "_id": null, "n": { "$sum": 1 }, "since": { "$min": created_at.clone() } } };
    let by_kind = [
        doc! { "$group": {
            "_id": {
                "event_type": text("$event_type", Bson::from("")),
                "schema_version": { "$ifNull": ["$schema_version", 1] },
                "topic": text("$topic", Bson::from("")),
                "stream": text("$stream", Bson::Null),
            },
            "n": { "$sum": 1 },
            "last_seen": { "$max": created_at },
            "seq": { "$max": "$seq" },
        } },
        doc! { "$sort": { "n": -1, "seq": -1 } },
        doc! { "$limit": KINDS_MAX as i64 },
    ];
    let all = at.events.aggregate(latest.iter().cloned().chain([all]));
    let all: Vec<Document> = connection.all(all).await?;
    let kinds = at.events.aggregate(latest.into_iter().chain(by_kind));
    let kinds: Vec<Document> = connection.all(kinds).await?;
    let mut examples = examples(connection, kinds.iter().map(|kind| field::seq(kind, "seq"))).await?;
    Ok(Look {
        events: all.first().map_or(0, |all| field::count(all, "n")),
        since: all.first().and_then(|all| field::optional_time(all, "since")),
        kinds: kinds
            .iter()
            .map(|found| kind(found, examples.remove(&field::seq(found, "seq"))))
            .collect(),
    })
}

/// Another program may have written any value.
fn text(name: &str, otherwise: Bson) -> Document {
    let is_text = doc! { "$eq": [{ "$type": name }, "string"] };
    doc! { "$cond": [is_text, { "$substrCP": [name, 0, 255] }, otherwise] }
}

/// These events, if they can be read and are not too large.
async fn examples(
    connection: &Connection,
    seqs: impl Iterator<Item = Seq>,
) -> Result<HashMap<Seq, StoredEvent>, StoreError> {
    let at = connection.collections().await?;
    let bytes = (EXAMPLE_BYTES_MAX + REST_BYTES_MAX) as i64;
    let wanted = [
        doc! { "$match": { "seq": { "$in": document::timestamps(seqs) } } },
        doc! { "$match": { "$expr": { "$lte": [{ "$bsonSize": "$$ROOT" }, bytes] } } },
    ];
    let found = at.events.aggregate(wanted).with_type::<RawDocumentBuf>();
    let limit = PageLimit {
        events: KINDS_MAX,
        bytes: usize::MAX,
        payload_bytes_max: EXAMPLE_BYTES_MAX,
    };
    let found = connection.all(found).await?;
    let read = found
        .iter()
        .filter_map(|found| document::event(found, limit).ok());
    Ok(read.map(|event| (event.seq, event)).collect())
}

fn kind(found: &Document, example: Option<StoredEvent>) -> Kind {
    let empty = Document::new();
    let id = found.get_document("_id").unwrap_or(&empty);
    let (aggregate_type, payload) = match example {
        Some(stored) => (stored.event.aggregate_type, Some(stored.event.payload)),
        None => Default::default(),
    };
    Kind {
        event_type: field::text(id, "event_type"),
        schema_version: i32::try_from(field::number(id, "schema_version")).unwrap_or_default(),
        topic: field::text(id, "topic"),
        stream: field::optional_text(id, "stream"),
        count: field::count(found, "n"),
        last_seen: field::time(found, "last_seen"),
        aggregate_type,
        payload,
    }
}
