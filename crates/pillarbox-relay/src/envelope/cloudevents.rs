//! CloudEvents 1.0: its JSON format, and its bindings for Kafka and NATS.
//!
//! | attribute | is |
//! | --- | --- |
//! | `id` | the event's id |
//! | `source` | the route's `source`, or `/<aggregate_type>` |
//! | `type` | the event's type |
//! | `subject` | the aggregate's id |
//! | `time` | when it was written |
//! | `datacontenttype` | `application/json` |
//! | `partitionkey` | the key (the Partitioning extension) |
//! | `traceparent`, `tracestate` | the producer's headers of these names (the Distributed Tracing extension says where a trace began; the wire's own header says which hop this is) |
//! | `correlationid` | the header `correlation-id` |
//! | `aggregatetype`, `aggregateversion`, `schemaversion`, `projectid`, `userid` | these fields |
//!
//! Numbers are strings, because an Integer of CloudEvents has 32 bits and a version has 64. The producer's own headers
//! are sent beside the attributes, under their own names.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pillarbox::wire::{self, cloudevents as attribute};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;

use super::{Binding, Message, Mode, not_json, own_headers};
use crate::sink::{Outgoing, SinkError};

const JSON: &str = "application/json";
const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";

/// What the HTTP and NATS bindings escape in a header, besides characters that are not ASCII.
const HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
/// What a segment of a path can't contain.
const SEGMENT: &AsciiSet = &HEADER
    .add(b'#')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

impl Binding {
    fn value<'a>(self, text: Cow<'a, str>) -> Cow<'a, str> {
        if !self.escapes {
            return text;
        }
        let escaped = match Cow::from(utf8_percent_encode(&text, HEADER)) {
            Cow::Borrowed(_) => None,
            Cow::Owned(escaped) => Some(escaped),
        };
        escaped.map_or(text, Cow::Owned)
    }
}

pub(super) fn message<'a>(
    outgoing: &'a Outgoing,
    mode: Mode,
    source: Option<&'a str>,
    binding: Binding,
) -> Result<Message<'a>, SinkError> {
    let event = &outgoing.event.event;
    let ours =
        |name: &str| wire::starts_with(name, binding.prefix) || name.eq_ignore_ascii_case(wire::CONTENT_TYPE);
    let (mut headers, body) = match mode {
        Mode::Binary => {
            let attributes = attributes(outgoing, source).into_iter().map(|(name, value)| {
                (
                    Cow::Owned(format!("{}{name}", binding.prefix)),
                    binding.value(value),
                )
            });
            let mut headers = vec![(wire::CONTENT_TYPE.into(), JSON.into())];
            headers.extend(attributes);
            (headers, event.payload.clone())
        }
        Mode::Structured => {
            let body =
                serde_json::to_vec(&Structured::new(outgoing, source)?).map_err(|error| not_json(&error))?;
            (vec![(wire::CONTENT_TYPE.into(), STRUCTURED.into())], body.into())
        }
    };
    headers.extend(own_headers(&event.headers, ours));
    Ok(Message {
        key: event.key(),
        headers,
        body,
    })
}

/// All attributes except `datacontenttype`, which is the content type in binary mode.
fn attributes<'a>(outgoing: &'a Outgoing, source: Option<&'a str>) -> Vec<(&'static str, Cow<'a, str>)> {
    let stored = &*outgoing.event;
    let event = &stored.event;
    let mut attributes: Vec<(&'static str, Cow<'a, str>)> = vec![
        (attribute::SPEC_VERSION, "1.0".into()),
        (attribute::ID, event.id.to_string().into()),
        (
            attribute::SOURCE,
            source.map_or_else(|| of(&event.aggregate_type), Cow::Borrowed),
        ),
        (attribute::TYPE, event.event_type.as_str().into()),
        (attribute::SUBJECT, event.aggregate_id.as_str().into()),
        (attribute::TIME, stored.created_at.to_string().into()),
        (attribute::PARTITION_KEY, event.key().into()),
        (attribute::AGGREGATE_TYPE, event.aggregate_type.as_str().into()),
        (attribute::SCHEMA_VERSION, event.schema_version.to_string().into()),
    ];
    let version = event.aggregate_version.map(|version| version.to_string().into());
    let header = |name: &str| event.headers.get(name).map(|text| text.as_str().into());
    let first = outgoing.first_traceparent.as_deref().map(Cow::Borrowed);
    let optional = [
        (attribute::AGGREGATE_VERSION, version),
        (attribute::PROJECT_ID, event.project_id.as_deref().map(Into::into)),
        (attribute::USER_ID, event.user_id.as_deref().map(Into::into)),
        (
            attribute::TRACEPARENT,
            first.or_else(|| header(wire::TRACEPARENT)),
        ),
        (attribute::TRACESTATE, header(wire::TRACESTATE)),
        (attribute::CORRELATION_ID, header(wire::CORRELATION_ID)),
    ];
    // An attribute must not be empty, so empty ones are left out.
    attributes.extend(
        optional
            .into_iter()
            .filter_map(|(name, value): (_, Option<Cow<'a, str>>)| Some((name, value?))),
    );
    attributes.retain(|(_, value)| !value.is_empty());
    attributes
}

/// The source of events whose route has none: a path, as a relative URI.
fn of(aggregate_type: &str) -> Cow<'_, str> {
    format!("/{}", utf8_percent_encode(aggregate_type, SEGMENT)).into()
}

/// The JSON format.
pub(super) struct Structured<'a> {
    attributes: Vec<(&'static str, Cow<'a, str>)>,
    data: &'a RawValue,
}

impl<'a> Structured<'a> {
    pub(super) fn new(outgoing: &'a Outgoing, source: Option<&'a str>) -> Result<Self, SinkError> {
        let mut attributes = attributes(outgoing, source);
        attributes.push(("datacontenttype", JSON.into()));
        let data = serde_json::from_slice(&outgoing.event.event.payload).map_err(|error| not_json(&error))?;
        Ok(Self { attributes, data })
    }
}

impl Serialize for Structured<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.attributes.len() + 1))?;
        for (name, value) in &self.attributes {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("data", self.data)?;
        map.end()
    }
}
