//! Turns a document into an event, or into the reason why it is unreadable.
//!
//! The names are those that services in other languages write: see [`super::schema`].

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp as Time;
use mongodb::bson::{Bson, DateTime, RawBsonRef, RawDocument, Timestamp};
use pillarbox::{Event, EventId, Limits};
use uuid::Uuid;

use super::json;
use crate::{
    event::{Lane, Seq, StoredEvent, Unreadable},
    store::{PageLimit, limits},
};

/// The second at which seqs start: 63 bits last until 2088.
const FIRST_SECOND: i64 = 1_600_000_000;

/// A tick of the cluster's clock as a seq.
pub(super) fn seq(at: Timestamp) -> Seq {
    ((i64::from(at.time) - FIRST_SECOND) << 32) | i64::from(at.increment)
}

pub(super) fn timestamp(seq: Seq) -> Timestamp {
    Timestamp {
        time: u32::try_from((seq >> 32) + FIRST_SECOND).unwrap_or(u32::MAX),
        increment: (seq & 0xffff_ffff) as u32,
    }
}

pub(super) fn timestamps(seqs: impl IntoIterator<Item = Seq>) -> Vec<Bson> {
    seqs.into_iter().map(|seq| timestamp(seq).into()).collect()
}

pub(super) fn time(at: DateTime) -> Time {
    Time::from_millisecond(at.timestamp_millis()).unwrap_or(Time::UNIX_EPOCH)
}

/// Rounded up, so that it is not before `at`: a date has milliseconds.
pub(super) fn date(at: Time) -> DateTime {
    let micros = at.as_microsecond();
    DateTime::from_millis(micros.div_euclid(1_000) + i64::from(micros.rem_euclid(1_000) > 0))
}

/// The event in a document of the main collection.
pub(super) fn event(document: &RawDocument, limit: PageLimit) -> Result<StoredEvent, Unreadable> {
    let fields = Fields(document);
    let seq = fields.seq();
    let lane = fields.lane();
    read(&fields, seq, lane, limit).map_err(|problem| Unreadable {
        seq,
        lane,
        problem,
        topic: fields.name("topic"),
        key: fields.name("partition_key").or_else(|| fields.name("entity_id")),
    })
}

fn read(fields: &Fields<'_>, seq: Seq, lane: Lane, limit: PageLimit) -> Result<StoredEvent, String> {
    let limits = Limits::default().payload_bytes_max(limit.payload_bytes_max);
    if let Ok(bytes) = fields.0.get_i32(TOO_LARGE) {
        return Err(format!(
            "the document has {bytes} bytes, more than an event can have"
        ));
    }
    limits::fetched(fields.name_bytes(), fields.header_bytes())?;
    let created_at = match fields.value("created_at")? {
        Some(RawBsonRef::DateTime(at)) => time(at),
        _ => return Err("created_at is not a date".to_owned()),
    };
    let mut event = Event::to(fields.text("topic")?)
        .id(fields.text("event_id")?)
        .event_type(fields.text("event_type")?)
        .aggregate(fields.text("entity_type")?, fields.text("entity_id")?);
    event.stream = fields.optional_text("stream")?;
    event.schema_version = fields
        .number("schema_version")?
        .map_or(Ok(1), |n| narrow("schema_version", n))?;
    event.aggregate_version = fields.number("entity_version")?;
    event.partition_key = fields.optional_text("partition_key")?;
    event.payload = fields.payload(&limits)?;
    event.headers = fields.headers()?;
    event.project_id = fields.optional_text("project_id")?;
    event.user_id = fields.optional_text("user_id")?;
    event.available_at = fields.available_at()?;
    event.retry.max_attempts = fields
        .number("max_retries")?
        .map(|n| narrow("max_retries", n))
        .transpose()?;
    event.retry.base_delay_ms = fields.number("base_delay_ms")?;
    event.retry.max_delay_ms = fields.number("max_delay_ms")?;
    event.retry.backoff_multiplier = fields.float("backoff_multiplier")?;
    limits
        .check(&event, created_at)
        .map_err(|problem| problem.to_string())?;
    let attempts = fields.number("retry_count")?.unwrap_or(0);
    Ok(StoredEvent {
        seq,
        lane,
        attempts: narrow("retry_count", attempts)?,
        created_at,
        event,
    })
}

/// The bytes of a document's payload, as a page counts them.
pub(super) fn payload_bytes(document: &RawDocument) -> usize {
    match document.get("payload") {
        Ok(Some(RawBsonRef::String(text))) => text.len(),
        Ok(Some(RawBsonRef::Document(payload))) => payload.as_bytes().len(),
        Ok(Some(RawBsonRef::Array(payload))) => payload.as_bytes().len(),
        _ => 0,
    }
}

/// The bytes that a document takes in memory, as a page counts them.
pub(super) fn fetched_bytes(document: &RawDocument, limit: PageLimit) -> usize {
    let fields = Fields(document);
    let within = |bytes, most| Some(bytes).filter(|&bytes| bytes <= most).unwrap_or(0);
    within(payload_bytes(document), limit.payload_bytes_max)
        + within(fields.header_bytes(), limits::headers_fetched_max())
        + within(fields.name_bytes(), limits::names_fetched_max())
}

/// The payload as it is delivered, and the headers. What can't be read is left out.
pub(super) fn content(document: &RawDocument) -> (Bytes, BTreeMap<String, String>) {
    let fields = Fields(document);
    let all = Limits::default().payload_bytes_max(usize::MAX);
    (
        fields.payload(&all).unwrap_or_default(),
        fields.headers().unwrap_or_default(),
    )
}

pub(super) fn lane_of(document: &RawDocument) -> Lane {
    Fields(document).lane()
}

/// The seq of any document that has one.
pub(super) fn seq_of(document: &RawDocument) -> Seq {
    Fields(document).seq()
}

/// Stands for the id of an event that has no readable one, so that people can still select it.
pub(super) fn id_of_seq(seq: Seq) -> EventId {
    Uuid::from_u64_pair(0, seq.unsigned_abs()).into()
}

/// The seq that [`id_of_seq`] made this id from.
pub(super) fn seq_of_id(id: &EventId) -> Option<Seq> {
    match id.as_uuid()?.as_u64_pair() {
        (0, seq) => Seq::try_from(seq).ok(),
        _ => None,
    }
}

/// Cut to the length that a readable event's texts can have.
pub(super) fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(Limits::default().name_bytes_max);
    end.map_or(text, |(end, _)| &text[..end])
}

/// Replaces a document that was not sent, with its size.
pub(super) const TOO_LARGE: &str = "too_large";

struct Fields<'a>(&'a RawDocument);

impl<'a> Fields<'a> {
    /// The collection's validator allows nothing else, and queries find nothing else.
    fn seq(&self) -> Seq {
        self.0.get_timestamp("seq").map_or(0, seq)
    }

    fn lane(&self) -> Lane {
        let lane = self.number("lane").ok().flatten();
        lane.and_then(|lane| Lane::try_from(lane).ok()).unwrap_or(0)
    }

    /// None if it is missing or null.
    fn value(&self, name: &str) -> Result<Option<RawBsonRef<'a>>, String> {
        let value = self
            .0
            .get(name)
            .map_err(|_| format!("{name} can't be read: the document is damaged"))?;
        Ok(value.filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined)))
    }

    fn text(&self, name: &str) -> Result<String, String> {
        self.optional_text(name)?
            .ok_or_else(|| format!("there is no {name}"))
    }

    fn optional_text(&self, name: &str) -> Result<Option<String>, String> {
        match self.value(name)? {
            None => Ok(None),
            Some(RawBsonRef::String(text)) => Ok(Some(text.to_owned())),
            Some(_) => Err(format!("{name} is not a text")),
        }
    }

    /// A text that is not longer than a name may be.
    fn name(&self, name: &str) -> Option<String> {
        let text = self.0.get_str(name).ok()?;
        (text.len() <= Limits::default().name_bytes_max).then(|| text.to_owned())
    }

    fn name_bytes(&self) -> usize {
        const NAMES: [&str; 9] = [
            "event_id",
            "topic",
            "stream",
            "event_type",
            "entity_type",
            "entity_id",
            "partition_key",
            "project_id",
            "user_id",
        ];
        NAMES
            .iter()
            .filter_map(|name| self.0.get_str(name).ok())
            .map(str::len)
            .sum()
    }

    fn header_bytes(&self) -> usize {
        self.0
            .get_document("headers")
            .map_or(0, |headers| headers.as_bytes().len())
    }

    fn number(&self, name: &str) -> Result<Option<i64>, String> {
        match self.value(name)? {
            None => Ok(None),
            Some(value) => whole(value)
                .map(Some)
                .ok_or_else(|| format!("{name} is not a whole number")),
        }
    }

    fn float(&self, name: &str) -> Result<Option<f64>, String> {
        match self.value(name)? {
            None => Ok(None),
            Some(RawBsonRef::Double(value)) => Ok(Some(value)),
            Some(RawBsonRef::Int32(value)) => Ok(Some(value.into())),
            Some(RawBsonRef::Int64(value)) => Ok(Some(value as f64)),
            Some(_) => Err(format!("{name} is not a number")),
        }
    }

    fn available_at(&self) -> Result<Option<Time>, String> {
        let at = match self.value("available_at")? {
            None => return Ok(None),
            Some(RawBsonRef::DateTime(at)) => at,
            Some(_) => return Err("available_at is not a date".to_owned()),
        };
        let rest = self.number("available_at_micros")?.unwrap_or(0).clamp(0, 999);
        let micros = at.timestamp_millis().saturating_mul(1_000).saturating_add(rest);
        Time::from_microsecond(micros)
            .map(Some)
            .map_err(|e| format!("available_at is not a time: {e}"))
    }

    /// Text is used unchanged. A payload that a service wrote as a document becomes JSON.
    fn payload(&self, allowed: &Limits) -> Result<Bytes, String> {
        let bytes = payload_bytes(self.0);
        if bytes > allowed.payload_bytes_max {
            return Err(limits::payload_too_large(bytes, allowed.payload_bytes_max));
        }
        match self.0.get("payload") {
            Ok(Some(RawBsonRef::String(text))) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            Ok(Some(value)) => json::text(value).map(Bytes::from),
            Ok(None) => Err("there is no payload".to_owned()),
            Err(_) => Err("payload can't be read: the document is damaged".to_owned()),
        }
    }

    fn headers(&self) -> Result<BTreeMap<String, String>, String> {
        let headers = match self.value("headers")? {
            None => return Ok(BTreeMap::new()),
            Some(RawBsonRef::Document(headers)) => headers,
            Some(_) => return Err("headers are not a document".to_owned()),
        };
        headers
            .iter()
            .map(|header| {
                let (name, value) = header.map_err(|_| "headers can't be read".to_owned())?;
                let name = name.as_str();
                let value = match value {
                    RawBsonRef::String(text) => text.to_owned(),
                    RawBsonRef::Boolean(truth) => truth.to_string(),
                    RawBsonRef::Double(number) => number.to_string(),
                    RawBsonRef::Int32(number) => number.to_string(),
                    RawBsonRef::Int64(number) => number.to_string(),
                    _ => return Err(format!("header `{name}` is not a text")),
                };
                Ok((name.to_owned(), value))
            })
            .collect()
    }
}

/// A shell writes every number as a double.
fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(value as i64),
        _ => None,
    }
}

fn narrow<T: TryFrom<i64>>(name: &str, value: i64) -> Result<T, String> {
    T::try_from(value).map_err(|_| format!("{name} is {value}, which is out of range"))
}
