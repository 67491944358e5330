//! A dead letter, as stored.

use mongodb::bson::{Bson, Document, doc};
use pillarbox::EventId;

use super::super::{document, field};
use crate::{
    dead::{DeadLetter, DeadState, Failure, Recovery, RecoveryAction},
    settlement::DeadReason,
};

pub(super) fn letter(found: &Document) -> DeadLetter {
    DeadLetter {
        id: id(found),
        seq: field::seq(found, "_id"),
        topic: field::text(found, "topic"),
        key: field::text(found, "key"),
        event_type: field::text(found, "event_type"),
        reason: DeadReason::from_stored(&field::text(found, "reason")),
        error: field::text(found, "error"),
        attempts: u32::try_from(field::number(found, "attempts")).unwrap_or_default(),
        sink: field::optional_text(found, "sink"),
        relay: field::text(found, "relay"),
        fingerprint: field::text(found, "fingerprint"),
        died_at: field::time(found, "died_at"),
        state: DeadState::from_stored(&field::text(found, "state")),
        blocks_key: found
            .get_array("blocking")
            .is_ok_and(|blocking| !blocking.is_empty()),
    }
}

/// The event's id. If that is not a text, an id made from the seq, so that people can still select the letter.
pub(in super::super) fn id(found: &Document) -> EventId {
    let id = field::id(found, "event_id").filter(|id| id.text_bytes() > 0);
    id.unwrap_or_else(|| document::id_of_seq(field::seq(found, "_id")))
}

/// The letters with these [`id`]s.
pub(super) fn with_ids(ids: &[EventId]) -> Document {
    let (mut texts, mut seqs) = (Vec::new(), Vec::new());
    for id in ids {
        seqs.extend(document::seq_of_id(id));
        texts.push(id.to_string());
    }
    let by_text = doc! { "event_id": { "$in": texts } };
    match seqs.is_empty() {
        true => by_text,
        false => doc! { "$or": [by_text, { "_id": { "$in": document::timestamps(seqs) } }] },
    }
}

pub(in super::super) fn failures(found: &Document) -> Vec<Failure> {
    let stored = found.get_array("failures").map(Vec::as_slice).unwrap_or_default();
    let stored = stored.iter().filter_map(Bson::as_document);
    stored
        .map(|failure| Failure {
            at: field::time(failure, "at"),
            error: field::text(failure, "error"),
            sink: field::optional_text(failure, "sink"),
            relay: field::text(failure, "relay"),
        })
        .collect()
}

pub(super) fn recovery(found: &Document) -> Recovery {
    Recovery {
        action: RecoveryAction::from_stored(&field::text(found, "action")),
        at: field::time(found, "at"),
        by: field::text(found, "by"),
        why: field::optional_text(found, "why"),
        new_id: field::id(found, "new_id"),
    }
}
