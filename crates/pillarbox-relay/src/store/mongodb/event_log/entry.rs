//! An entry, as stored.

use mongodb::bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc, raw::cstr};
use pillarbox::{Event, wire};

use super::super::{
    after_death::Letter,
    batch::{Known, count},
    dead::failures,
    document::{self, cut},
    field,
};
use super::append::Deliveries;
use crate::{
    event_log::{LogEntry, LogOutcome, LogRow, Position, Stretch},
    settlement::DeadReason,
};

/// What the entry of a delivery copies from its event, and the event's lane.
pub(super) fn copied_fields() -> Document {
    let correlation = format!("$headers.{}", wire::CORRELATION_ID);
    let correlation = doc! { "$convert": {
        "input": correlation, "to": "string", "onError": "$$REMOVE", "onNull": "$$REMOVE",
    } };
    doc! {
        "_id": 0, "status": "published", "at": "$$NOW", "seq": 1, "lane": 1, "event_id": 1, "topic": 1, "stream": 1,
        "event_type": 1, "schema_version": 1, "entity_type": 1, "entity_id": 1, "entity_version": 1, "partition_key": 1,
        "project_id": 1, "user_id": 1, "correlation_id": correlation, "created_at": 1, "retry_count": 1, "headers": 1,
        "payload": 1,
    }
}

/// The event's id. An id that is not a text is replaced by one that is made from the seq, as in dead letters.
pub(super) fn id(event: &RawDocument) -> String {
    match event.get_str("event_id") {
        Ok(id) if !id.is_empty() => cut(id).to_owned(),
        _ => document::id_of_seq(document::seq_of(event)).to_string(),
    }
}

/// The entry of a delivery, from [`copied_fields`]. Fields without a value are left out of it.
pub(super) fn of(position: Position, event: &RawDocument, deliveries: &Deliveries<'_>) -> RawDocumentBuf {
    let mut entry = RawDocumentBuf::new();
    entry.append(cstr!("_id"), position);
    for (name, value) in event.iter().flatten() {
        match (name.as_str(), value) {
            ("lane", _) | (_, RawBsonRef::Null) => {}
            ("event_id", _) => entry.append(name, id(event).as_str()),
            ("correlation_id", RawBsonRef::String(text)) => entry.append(name, cut(text)),
            _ => entry.append(name, value),
        }
    }
    if let Some(failures) = deliveries.failures(event) {
        entry.append(cstr!("failures"), failures);
    }
    if let Some(sink) = deliveries.sink(event) {
        entry.append(cstr!("sink"), sink);
    }
    if let Some(relay) = deliveries.relay {
        entry.append(cstr!("relay"), relay);
    }
    entry
}

/// The entry of a death. It has neither payload nor headers: they may be unreadable or too large.
pub(super) fn of_death(
    position: Position,
    letter: &Letter,
    event: &Known,
    failures: Vec<Bson>,
    now: DateTime,
) -> Document {
    let mut entry = doc! {
        "_id": position, "status": "dead", "at": now, "seq": document::timestamp(letter.seq),
        "event_id": cut(event.text("event_id")), "retry_count": count(letter.attempts),
        "reason": letter.reason.as_str(), "error": letter.error(), "failures": failures,
    };
    for name in ["sink", "relay"] {
        if let Some(Bson::String(text)) = letter.failure.get(name) {
            entry.insert(name, text);
        }
    }
    for name in [
        "topic",
        "stream",
        "event_type",
        "entity_type",
        "entity_id",
        "partition_key",
        "project_id",
        "user_id",
        "correlation_id",
    ] {
        if let Ok(text) = event.document.get_str(name) {
            entry.insert(name, cut(text));
        }
    }
    for name in ["schema_version", "entity_version", "created_at"] {
        let value = event.document.get(name);
        if let Some(value @ (Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::DateTime(_))) = value {
            entry.insert(name, value.clone());
        }
    }
    entry
}

pub(super) fn void(position: Position, now: DateTime) -> Document {
    doc! { "_id": position, "status": "void", "at": now }
}

/// One void row for many positions.
pub(super) fn voids(first: Position, last: Position, now: DateTime) -> Document {
    doc! { "_id": last, "status": "void", "at": now, "first": first }
}

/// The positions that a row stands for.
pub(super) fn positions(fields: &Document) -> Stretch {
    let last = field::number(fields, "_id");
    let first = if fields.contains_key("first") {
        field::number(fields, "first")
    } else {
        last
    };
    Stretch { first, last }
}

pub(super) fn row(found: &RawDocument) -> LogRow {
    if matches!(found.get_str("status"), Ok("void")) {
        return LogRow::Void(positions(&fields(found)));
    }
    LogRow::Entry(Box::new(entry(found)))
}

pub(super) fn entry(found: &RawDocument) -> LogEntry {
    let fields = fields(found);
    let outcome = match field::text(&fields, "status").as_str() {
        "dead" => LogOutcome::Dead {
            reason: DeadReason::from_stored(&field::text(&fields, "reason")),
            error: field::text(&fields, "error"),
        },
        _ => LogOutcome::Published,
    };
    let narrow = |wide: i64| i32::try_from(wide).unwrap_or(i32::MAX);
    let number = |name: &str| fields.contains_key(name).then(|| field::number(&fields, name));
    let mut event = Event::to(field::text(&fields, "topic"))
        .id(field::text(&fields, "event_id"))
        .event_type(field::text(&fields, "event_type"))
        .aggregate(
            field::text(&fields, "entity_type"),
            field::text(&fields, "entity_id"),
        );
    event.stream = field::optional_text(&fields, "stream");
    event.schema_version = narrow(number("schema_version").unwrap_or(1));
    event.aggregate_version = number("entity_version");
    event.partition_key = field::optional_text(&fields, "partition_key");
    event.project_id = field::optional_text(&fields, "project_id");
    event.user_id = field::optional_text(&fields, "user_id");
    (event.payload, event.headers) = document::content(found);
    LogEntry {
        position: field::number(&fields, "_id"),
        at: field::time(&fields, "at"),
        outcome,
        seq: field::seq(&fields, "seq"),
        created_at: field::time(&fields, "created_at"),
        attempts: u32::try_from(field::number(&fields, "retry_count")).unwrap_or_default(),
        failures: failures(&fields),
        sink: field::optional_text(&fields, "sink"),
        relay: field::optional_text(&fields, "relay"),
        event,
    }
}

/// Everything except the payload and the headers.
fn fields(found: &RawDocument) -> Document {
    let field = |(name, value): (&mongodb::bson::raw::CStr, RawBsonRef<'_>)| {
        let name = name.as_str();
        if matches!(name, "payload" | "headers") {
            return None;
        }
        Some((name.to_owned(), Bson::try_from(value).ok()?))
    };
    found.iter().flatten().filter_map(field).collect()
}
