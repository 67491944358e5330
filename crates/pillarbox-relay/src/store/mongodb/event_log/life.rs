//! The event's own document in the outbox.

use mongodb::bson::{Document, RawDocumentBuf, doc};
use pillarbox::{EventId, Limits};

use super::super::{
    connection::Connection,
    dead::{failures, within},
    document, field,
};
use crate::{event_log::LifeRow, store::StoreError};

/// The indexes `event_id` and `seq` serve it.
pub(super) async fn row(connection: &Connection, id: &EventId) -> Result<Option<LifeRow>, StoreError> {
    let at = connection.collections().await?;
    let events = at.events.clone_with_type::<RawDocumentBuf>();
    let Some(found) = connection.run(events.find_one(with_id(id))).await? else {
        return Ok(None);
    };
    let fields = Document::try_from(&found).unwrap_or_default();
    let seq = document::seq_of(&found);
    let parked = doc! { "_id": document::timestamp(seq) };
    let parked = connection
        .run(at.parked.find_one(parked))
        .await?
        .unwrap_or_default();
    let event = document::event(&found, within(&Limits::default())).ok();
    let retry_at = || field::optional_time(&fields, "retry_at");
    let status = status(&fields, &parked);
    Ok(Some(LifeRow {
        seq,
        created_at: field::time(&fields, "created_at"),
        attempts: u32::try_from(field::number(&fields, "retry_count")).unwrap_or_default(),
        first_attempt_at: field::optional_time(&fields, "first_attempt_at"),
        last_attempt_at: field::optional_time(&fields, "last_attempt_at"),
        published_at: field::optional_time(&fields, "published_at"),
        last_error: field::optional_text(&fields, "last_error"),
        due_at: field::optional_time(&parked, "due_at")
            .or_else(|| (status == "failed").then(retry_at).flatten()),
        failures: failures(&parked),
        event: event.map(|stored| stored.event),
        status,
    }))
}

/// An id that is made from the seq belongs to an event without a readable id.
fn with_id(id: &EventId) -> Document {
    match document::seq_of_id(id) {
        Some(seq) => doc! { "seq": document::timestamp(seq) },
        None => doc! { "event_id": id.to_string() },
    }
}

/// `blocked` says that a dead event blocks its key, and `processing` that a relay has claimed the event.
fn status(event: &Document, parked: &Document) -> String {
    let parked = field::optional_text(parked, "state").filter(|state| state != "blocked");
    match parked.unwrap_or_else(|| field::text(event, "status")).as_str() {
        "processing" => "pending".to_owned(),
        status => status.to_owned(),
    }
}
