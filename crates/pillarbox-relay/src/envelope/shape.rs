//! A message that the configuration describes field by field, so that consumers of another worker need no change.

mod json;
mod parse;
pub mod presets;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
#[cfg(feature = "kafka")]
use pillarbox::EventId;
use serde_json::value::RawValue;

use self::json::Node;
pub use self::parse::ShapeError;
use super::{Header, Message, ROW_PREFIX};
use crate::{
    event::StoredEvent,
    sink::{SinkError, SinkErrorKind},
};

/// The fields of a message. The default is the payload alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// The fields of the body, one after another. None: the payload, byte for byte.
    pub body: Vec<(Place, Value)>,
    pub headers: Vec<(String, Value)>,
}

/// A place in the body: the keys that lead to a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub keys: Vec<String>,
    /// The value is an object, and its fields are put here one by one.
    pub spread: bool,
}

/// What a field contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Fixed(String),
    Field(Field),
    /// A header of the producer.
    Header(String),
    /// A part of the payload; the whole payload if there are no keys.
    Payload(Vec<String>),
    /// A column of an adopted row, as JSON, and the keys in it.
    Row(String, Vec<String>),
}

/// A field of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Id,
    Topic,
    Stream,
    EventType,
    SchemaVersion,
    AggregateType,
    AggregateId,
    AggregateVersion,
    Key,
    ProjectId,
    UserId,
    CreatedAt,
    Seq,
}

impl Field {
    const ALL: [(&'static str, Self); 14] = [
        ("id", Self::Id),
        ("topic", Self::Topic),
        ("stream", Self::Stream),
        ("event_type", Self::EventType),
        ("schema_version", Self::SchemaVersion),
        ("aggregate_type", Self::AggregateType),
        ("aggregate_id", Self::AggregateId),
        ("aggregate_version", Self::AggregateVersion),
        ("key", Self::Key),
        ("partition_key", Self::Key),
        ("project_id", Self::ProjectId),
        ("user_id", Self::UserId),
        ("created_at", Self::CreatedAt),
        ("seq", Self::Seq),
    ];

    /// `None`: the event has none.
    fn text(self, stored: &StoredEvent) -> Option<Cow<'_, str>> {
        let event = &stored.event;
        Some(match self {
            Self::Id => event.id.to_string().into(),
            Self::Topic => event.topic.as_str().into(),
            Self::Stream => event.stream.as_deref()?.into(),
            Self::EventType => event.event_type.as_str().into(),
            Self::SchemaVersion => event.schema_version.to_string().into(),
            Self::AggregateType => event.aggregate_type.as_str().into(),
            Self::AggregateId => event.aggregate_id.as_str().into(),
            Self::AggregateVersion => event.aggregate_version?.to_string().into(),
            Self::Key => event.key().into(),
            Self::ProjectId => event.project_id.as_deref()?.into(),
            Self::UserId => event.user_id.as_deref()?.into(),
            Self::CreatedAt => stored.created_at.to_string().into(),
            Self::Seq => stored.seq.to_string().into(),
        })
    }

    fn is_number(self) -> bool {
        matches!(self, Self::SchemaVersion | Self::AggregateVersion | Self::Seq)
    }
}

impl Shape {
    pub(super) fn message<'a>(&self, stored: &'a StoredEvent) -> Result<Message<'a>, SinkError> {
        let mut headers: Vec<Header<'a>> = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            // A header without a value is left out.
            if let Some(text) = value.text(stored)? {
                headers.push((name.clone().into(), text));
            }
        }
        Ok(Message {
            key: stored.event.key(),
            headers,
            body: self.body(stored)?,
        })
    }

    /// Whether its messages have the event's id.
    #[cfg(feature = "kafka")]
    pub(crate) fn shows_id(&self) -> bool {
        let is_id = |value: &Value| *value == Value::Field(Field::Id);
        self.headers.iter().any(|(_, value)| is_id(value)) || self.body.iter().any(|(_, value)| is_id(value))
    }

    /// The event's id in one of its messages.
    #[cfg(feature = "kafka")]
    pub(super) fn id_in<'a>(&self, header: impl Fn(&str) -> Option<&'a str>, body: &[u8]) -> Option<EventId> {
        let is_id = |value: &Value| *value == Value::Field(Field::Id);
        if let Some((name, _)) = self.headers.iter().find(|(_, value)| is_id(value)) {
            return header(name).map(EventId::from);
        }
        let (place, _) = self.body.iter().find(|(_, value)| is_id(value))?;
        let json = json::find(body, &place.keys).ok()??;
        serde_json::from_str(&json).ok()
    }

    /// The body.
    pub(super) fn body(&self, stored: &StoredEvent) -> Result<Bytes, SinkError> {
        if self.body.is_empty() {
            return Ok(stored.event.payload.clone());
        }
        let mut body = Node::default();
        for (place, value) in &self.body {
            let json = value.json(stored)?;
            body.put(&place.keys, &json, place.spread).map_err(|problem| {
                invalid(format!(
                    "the message can't have the shape of its route: {problem}"
                ))
            })?;
        }
        Ok(body.write().into())
    }
}

impl Value {
    /// As the text of a header. `None`: there is none.
    fn text<'a>(&self, stored: &'a StoredEvent) -> Result<Option<Cow<'a, str>>, SinkError> {
        Ok(match self {
            Self::Fixed(text) => Some(text.clone().into()),
            Self::Field(field) => field.text(stored),
            Self::Header(name) => stored.event.headers.get(name).map(|text| text.as_str().into()),
            Self::Payload(_) | Self::Row(..) => {
                let json = self.json(stored)?;
                match serde_json::from_str::<Option<&RawValue>>(json.get()) {
                    Ok(None) => None,
                    _ => Some(match serde_json::from_str::<String>(json.get()) {
                        Ok(text) => text.into(),
                        Err(_) => json.get().to_owned().into(),
                    }),
                }
            }
        })
    }

    /// As JSON. What the event does not have is null.
    fn json(&self, stored: &StoredEvent) -> Result<Arc<RawValue>, SinkError> {
        let text = match self {
            Self::Field(field) if field.is_number() => field.text(stored).map(Cow::into_owned),
            Self::Fixed(_) | Self::Field(_) | Self::Header(_) => match self.text(stored)? {
                None => None,
                Some(text) => Some(serde_json::to_string(&text).map_err(|error| super::not_json(&error))?),
            },
            Self::Payload(keys) => json::find(&stored.event.payload, keys).map_err(invalid)?,
            Self::Row(column, keys) => {
                let header = stored.event.headers.get(&format!("{ROW_PREFIX}{column}"));
                match header {
                    None => None,
                    Some(json) => json::find(json.as_bytes(), keys).map_err(invalid)?,
                }
            }
        };
        let text = text.unwrap_or_else(|| "null".to_owned());
        RawValue::from_string(text)
            .map(Arc::from)
            .map_err(|error| super::not_json(&error))
    }
}

fn invalid(problem: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Invalid, problem)
}
