//! A received event, in any envelope. The relay's `envelope` describes each one.
//!
//! Missing fields are tolerated, except the id: without it, a copy can't be told from another event.

use std::{collections::BTreeMap, ops::Deref, str::FromStr};

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{handler::HandlerError, message::Message};
use crate::{
    event::{Event, EventId, whole::Whole},
    wire::{self, cloudevents as attribute},
};

/// The maximum length of an event's id.
const ID_BYTES_MAX: usize = 255;
/// The maximum length of names and other ids: they are in indexes.
const NAME_BYTES_MAX: usize = 1_000;

/// A received event. It is an [`Event`] with the time when it was written.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Received {
    /// What the producer wrote.
    pub event: Event,
    /// When it was written, if the envelope contains it.
    pub created_at: Option<Timestamp>,
}

impl Deref for Received {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl Received {
    /// The payload as a `T`. If it does not match, the error rejects the event: a retry would not help.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_slice(&self.event.payload)
            .map_err(|error| HandlerError::reject(format!("the payload is not what was expected: {error}")))
    }

    /// Reads a message, or says why it is not an event.
    pub(super) fn read(message: &Message) -> Result<Self, String> {
        let received = match Envelope::of(message) {
            Envelope::Raw => raw(message),
            Envelope::CloudEvent(prefix) => cloud_event(message, &|name| {
                let text = message.header(&format!("{prefix}{name}"))?;
                // The NATS binding escapes values, the Kafka binding does not.
                Some(if prefix == attribute::NATS_PREFIX {
                    unescaped(text)
                } else {
                    text.to_owned()
                })
            }),
            Envelope::StructuredCloudEvent => structured(message),
            Envelope::Whole => whole(message),
            Envelope::Debezium => debezium(message),
            Envelope::Unknown => Err("it carries no event id".to_owned()),
        }?;
        received.check()?;
        Ok(received)
    }

    /// Refuses names that a database would not store: the inbox could not remember them.
    fn check(&self) -> Result<(), String> {
        let event = &self.event;
        event.id.with_text(checked_id)?;
        let names = [
            ("event type", event.event_type.as_str()),
            ("aggregate type", &event.aggregate_type),
            ("aggregate id", &event.aggregate_id),
            ("key", event.key()),
        ];
        for (what, text) in names {
            if text.len() > NAME_BYTES_MAX {
                return Err(format!("its {what} has more than {NAME_BYTES_MAX} bytes"));
            }
            no_control_character(what, text)?;
        }
        Ok(())
    }
}

fn checked_id(id: &str) -> Result<(), String> {
    if id.is_empty() {
        return Err("its event id is empty".to_owned());
    }
    if id.len() > ID_BYTES_MAX {
        return Err(format!("its event id has more than {ID_BYTES_MAX} bytes"));
    }
    no_control_character("event id", id)
}

fn no_control_character(what: &str, text: &str) -> Result<(), String> {
    match text.contains(|c: char| c.is_control()) {
        true => Err(format!("its {what} has a control character")),
        false => Ok(()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Envelope {
    Raw,
    /// CloudEvents in binary mode; the attributes are headers with this prefix.
    CloudEvent(&'static str),
    StructuredCloudEvent,
    Whole,
    Debezium,
    Unknown,
}

impl Envelope {
    fn of(message: &Message) -> Self {
        let has = |name: &str| message.header(name).is_some();
        let content = message.header(wire::CONTENT_TYPE).unwrap_or_default();
        if has(wire::EVENT_TYPE) {
            Self::Raw
        } else if content.starts_with("application/cloudevents") {
            Self::StructuredCloudEvent
        } else if let Some(prefix) = [attribute::KAFKA_PREFIX, attribute::NATS_PREFIX]
            .into_iter()
            .find(|prefix| has(&format!("{prefix}{}", attribute::ID)))
        {
            Self::CloudEvent(prefix)
        } else if has(wire::debezium::ID) && has(wire::debezium::EVENT_TYPE) {
            Self::Debezium
        } else if serde_json::from_slice::<Identified>(&message.body).is_ok() {
            Self::Whole
        } else if has(wire::ID) || has(wire::NATS_MSG_ID) {
            Self::Raw
        } else {
            Self::Unknown
        }
    }
}

/// Tells one JSON object with all fields from a payload.
#[derive(Deserialize)]
struct Identified {
    #[serde(rename = "id")]
    _id: EventId,
    #[serde(rename = "event_type")]
    _event_type: String,
    #[serde(rename = "payload")]
    _payload: Box<RawValue>,
}

/// A missing body counts as the payload `null`.
fn body(message: &Message) -> Bytes {
    match message.body.is_empty() {
        true => Bytes::from_static(b"null"),
        false => message.body.clone(),
    }
}

fn id(text: Option<&str>) -> Result<EventId, String> {
    text.map(EventId::from)
        .ok_or_else(|| "it carries no event id".to_owned())
}

fn number<T: FromStr>(what: &str, text: Option<&str>) -> Result<Option<T>, String> {
    text.map(|text| text.parse().map_err(|_| format!("its {what} is not a number")))
        .transpose()
}

/// The headers that belong to no envelope: the producer's own.
fn own_headers(message: &Message, ours: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    message
        .headers
        .iter()
        .filter(|(name, _)| {
            !wire::starts_with(name, wire::PREFIX)
                && !wire::starts_with(name, wire::NATS_PREFIX)
                && !ours(name)
        })
        .filter_map(|(name, text)| Some((name.clone(), std::str::from_utf8(text).ok()?.to_owned())))
        .collect()
}

fn event(
    message: &Message,
    id: EventId,
    event_type: String,
    aggregate: (String, String),
    key: Option<String>,
) -> Event {
    let own_key = || String::from_utf8(message.key.as_ref()?.to_vec()).ok();
    let key = key.or_else(own_key).filter(|key| !key.is_empty());
    let (aggregate_type, aggregate_id) = aggregate;
    let mut event = Event::to(message.topic.clone())
        .id(id)
        .event_type(event_type)
        .aggregate(aggregate_type, aggregate_id);
    // If the key is the aggregate's id, no partition key was set.
    event.partition_key = key.filter(|key| *key != event.aggregate_id);
    event
}

fn raw(message: &Message) -> Result<Received, String> {
    let text = |name: &str| message.header(name).map(str::to_owned);
    let id = id(message.header(wire::ID).or(message.header(wire::NATS_MSG_ID)))?;
    let aggregate = (
        text(wire::AGGREGATE_TYPE).unwrap_or_default(),
        text(wire::AGGREGATE_ID).unwrap_or_default(),
    );
    let event_type = text(wire::EVENT_TYPE).unwrap_or_default();
    let mut event = event(message, id, event_type, aggregate, text(wire::KEY));
    event.payload = body(message);
    event.aggregate_version = number("aggregate version", message.header(wire::AGGREGATE_VERSION))?;
    event.schema_version = number("schema version", message.header(wire::SCHEMA_VERSION))?.unwrap_or(1);
    event.project_id = text(wire::PROJECT_ID);
    event.user_id = text(wire::USER_ID);
    event.headers = own_headers(message, |_| false);
    Ok(Received {
        event,
        created_at: message.header(wire::CREATED_AT).and_then(|at| at.parse().ok()),
    })
}

fn cloud_event(message: &Message, get: &dyn Fn(&str) -> Option<String>) -> Result<Received, String> {
    let id = id(get(attribute::ID).as_deref())?;
    let aggregate = (
        get(attribute::AGGREGATE_TYPE).unwrap_or_default(),
        get(attribute::SUBJECT).unwrap_or_default(),
    );
    let event_type = get(attribute::TYPE).unwrap_or_default();
    let mut event = event(message, id, event_type, aggregate, get(attribute::PARTITION_KEY));
    event.payload = body(message);
    event.aggregate_version = number("aggregate version", get(attribute::AGGREGATE_VERSION).as_deref())?;
    event.schema_version = number("schema version", get(attribute::SCHEMA_VERSION).as_deref())?.unwrap_or(1);
    event.project_id = get(attribute::PROJECT_ID);
    event.user_id = get(attribute::USER_ID);
    event.headers = own_headers(message, |name| {
        wire::starts_with(name, attribute::KAFKA_PREFIX)
            || wire::starts_with(name, attribute::NATS_PREFIX)
            || name.eq_ignore_ascii_case(wire::CONTENT_TYPE)
    });
    for (name, from) in [
        (wire::TRACEPARENT, attribute::TRACEPARENT),
        (wire::TRACESTATE, attribute::TRACESTATE),
        (wire::CORRELATION_ID, attribute::CORRELATION_ID),
    ] {
        if let Some(text) = get(from) {
            event.headers.entry(name.to_owned()).or_insert(text);
        }
    }
    Ok(Received {
        event,
        created_at: get(attribute::TIME).and_then(|at| at.parse().ok()),
    })
}

fn structured(message: &Message) -> Result<Received, String> {
    let attributes: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(&message.body).map_err(|error| format!("it is not a CloudEvent: {error}"))?;
    let text = |name: &str| serde_json::from_str::<String>(attributes.get(name)?.get()).ok();
    let mut received = cloud_event(message, &text)?;
    let data = attributes.get("data").map_or("null", |data| data.get());
    received.event.payload = Bytes::from(data.to_owned());
    Ok(received)
}

fn whole(message: &Message) -> Result<Received, String> {
    let whole = Whole::read(&message.body).map_err(|error| format!("it is not an event: {error}"))?;
    Ok(Received {
        event: whole.event,
        created_at: whole.created_at,
    })
}

fn debezium(message: &Message) -> Result<Received, String> {
    let id = id(message.header(wire::debezium::ID))?;
    let event_type = message
        .header(wire::debezium::EVENT_TYPE)
        .unwrap_or_default()
        .to_owned();
    let mut event = event(message, id, event_type, Default::default(), None);
    event.payload = body(message);
    event.headers = own_headers(message, |name| {
        name.eq_ignore_ascii_case(wire::debezium::ID) || name.eq_ignore_ascii_case(wire::debezium::EVENT_TYPE)
    });
    Ok(Received {
        event,
        created_at: None,
    })
}

/// `%C3%AB` is `ë`. Text that is not an escape is unchanged.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
