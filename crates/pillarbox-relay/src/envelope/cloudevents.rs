//! CloudEvents 1.0, by its JSON format and its bindings for Kafka and NATS.
//!
//! | attribute | is |
//! | --- | --- |
//! | `id` | the event's id |
//! | `source` | what the route says, else `/<aggregate_type>` |
//! | `type` | the event's type |
//! | `subject` | the aggregate's id |
//! | `time` | when it was written |
//! | `datacontenttype` | `application/json` |
//! | `partitionkey` | the key (the Partitioning extension) |
//! | `traceparent`, `tracestate` | the headers of these names (the Distributed Tracing extension) |
//! | `correlationid` | the header `correlation-id` |
//! | `aggregatetype`, `aggregateversion`, `schemaversion`, `projectid`, `userid` | these fields |
//!
//! Numbers are strings: an Integer of CloudEvents has 32 bits, a version 64. The producer's own headers stand beside
//! the attributes under their own names.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pillarbox::wire;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;

use super::{Binding, Message, Mode, not_json, own_headers};
use crate::{event::StoredEvent, sink::SinkError};

const CONTENT_TYPE: &str = "content-type";
const JSON: &str = "application/json";
const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";

/// What a header of the HTTP and NATS bindings escapes, besides what is not ASCII.
const HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
/// What a segment of a path can't hold.
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
    stored: &'a StoredEvent,
    mode: Mode,
    source: Option<&'a str>,
    binding: Binding,
) -> Result<Message<'a>, SinkError> {
    let event = &stored.event;
    let ours =
        |name: &str| wire::starts_with(name, binding.prefix) || name.eq_ignore_ascii_case(CONTENT_TYPE);
    let (mut headers, body) = match mode {
        Mode::Binary => {
            let attributes = attributes(stored, source).into_iter().map(|(name, value)| {
                (
                    Cow::Owned(format!("{}{name}", binding.prefix)),
                    binding.value(value),
                )
            });
            let mut headers = vec![(CONTENT_TYPE.into(), JSON.into())];
            headers.extend(attributes);
            (headers, event.payload.clone())
        }
        Mode::Structured => {
            let body = serde_json::to_vec(&Structured::new(stored, source, None)?)
                .map_err(|error| not_json(&error))?;
            (vec![(CONTENT_TYPE.into(), STRUCTURED.into())], body.into())
        }
    };
    headers.extend(own_headers(&event.headers, ours));
    Ok(Message {
        key: event.key(),
        headers,
        body,
    })
}

/// All of them but `datacontenttype`, which binary mode carries as the content type.
fn attributes<'a>(stored: &'a StoredEvent, source: Option<&'a str>) -> Vec<(&'static str, Cow<'a, str>)> {
    let event = &stored.event;
    let mut attributes: Vec<(&'static str, Cow<'a, str>)> = vec![
        ("specversion", "1.0".into()),
        ("id", event.id.to_string().into()),
        (
            "source",
            source.map_or_else(|| of(&event.aggregate_type), Cow::Borrowed),
        ),
        ("type", event.event_type.as_str().into()),
        ("subject", event.aggregate_id.as_str().into()),
        ("time", stored.created_at.to_string().into()),
        ("partitionkey", event.key().into()),
        ("aggregatetype", event.aggregate_type.as_str().into()),
        ("schemaversion", event.schema_version.to_string().into()),
    ];
    let version = event.aggregate_version.map(|version| version.to_string().into());
    let header = |name: &str| event.headers.get(name).map(|text| text.as_str().into());
    let optional = [
        ("aggregateversion", version),
        ("projectid", event.project_id.as_deref().map(Into::into)),
        ("userid", event.user_id.as_deref().map(Into::into)),
        ("traceparent", header(wire::TRACEPARENT)),
        ("tracestate", header(wire::TRACESTATE)),
        ("correlationid", header(wire::CORRELATION_ID)),
    ];
    // An attribute is never empty: what is empty is left out.
    attributes.extend(
        optional
            .into_iter()
            .filter_map(|(name, value): (_, Option<Cow<'a, str>>)| Some((name, value?))),
    );
    attributes.retain(|(_, value)| !value.is_empty());
    attributes
}

/// The source of events whose route says none: a path, as a relative URI.
fn of(aggregate_type: &str) -> Cow<'_, str> {
    format!("/{}", utf8_percent_encode(aggregate_type, SEGMENT)).into()
}

/// The JSON format.
pub(super) struct Structured<'a> {
    attributes: Vec<(&'static str, Cow<'a, str>)>,
    data: &'a RawValue,
}

impl<'a> Structured<'a> {
    /// `position` is where a stream's reader goes on from: an extension attribute.
    pub(super) fn new(
        stored: &'a StoredEvent,
        source: Option<&'a str>,
        position: Option<u64>,
    ) -> Result<Self, SinkError> {
        let mut attributes = attributes(stored, source);
        attributes.push(("datacontenttype", JSON.into()));
        attributes.extend(position.map(|position| ("position", position.to_string().into())));
        let data = serde_json::from_slice(&stored.event.payload).map_err(|error| not_json(&error))?;
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
