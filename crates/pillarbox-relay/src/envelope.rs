//! The format of an event at the receiver: which of its fields are headers, and what the body is.
//!
//! Sinks with headers send a [`Message`]: a key, headers and a body. Sinks that write lines have no headers; they write
//! a `line`, one JSON object. This module decides, by the event's route, where each field goes. The sink decides how it
//! is written on the wire.

mod cloudevents;
mod debezium;
#[cfg(feature = "kafka")]
pub(crate) mod id;
pub(crate) mod line;
pub(crate) mod raw;
pub mod shape;
pub(crate) mod whole;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use pillarbox::wire;

use self::shape::Shape;
use crate::sink::{Outgoing, SinkError, SinkErrorKind};

/// The format of a route's events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Envelope {
    /// The payload is the body, byte for byte. The rest are headers.
    #[default]
    Raw,
    /// CloudEvents 1.0.
    CloudEvents {
        mode: Mode,
        /// The source of its events. The default is `/<aggregate_type>`.
        source: Option<Arc<str>>,
    },
    /// One JSON object with everything.
    Pillarbox,
    /// The output of Debezium's outbox event router: the payload, with the headers `id` and `eventType`.
    Debezium,
    /// What the configuration describes field by field.
    Shape(Arc<Shape>),
}

/// Before the names of headers that contain columns of an adopted row. They are for shapes; no other message has them.
pub const ROW_PREFIX: &str = "row.";

/// The two modes of CloudEvents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The payload is the body, and attributes are headers.
    Binary,
    /// One JSON object with the attributes, and the payload as `data`.
    Structured,
}

/// How a sink writes the headers of CloudEvents, according to the binding of its protocol. Each sink has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The prefix of the attributes' names: `ce_`.
    pub prefix: &'static str,
    /// Whether headers may contain only ASCII. Values are then escaped as in HTTP.
    pub escapes: bool,
}

/// An event for a wire with headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    pub key: &'a str,
    /// The envelope's own headers come first. A producer's header never has one of their names.
    pub headers: Vec<Header<'a>>,
    pub body: Bytes,
}

pub type Header<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Puts the event into its route's envelope.
pub fn message(outgoing: &Outgoing, binding: Binding) -> Result<Message<'_>, SinkError> {
    let stored = &*outgoing.event;
    match &outgoing.envelope {
        Envelope::Raw => Ok(raw::message(stored)),
        Envelope::CloudEvents { mode, source } => {
            cloudevents::message(outgoing, *mode, source.as_deref(), binding)
        }
        Envelope::Pillarbox => whole::message(stored),
        Envelope::Debezium => Ok(debezium::message(stored)),
        Envelope::Shape(shape) => shape.message(stored),
    }
}

/// The producer's own headers. Consumers trust the envelope's headers and recognise the raw envelope by its names, so a
/// producer's header with such a name gets the prefix `X-`.
fn own_headers<'a>(
    headers: &'a std::collections::BTreeMap<String, String>,
    taken: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Header<'a>> {
    let sent = headers.iter().filter(|(name, _)| !name.starts_with(ROW_PREFIX));
    sent.map(move |(name, text)| {
        let name = match taken(name) || wire::starts_with(name, wire::PREFIX) {
            true => Cow::Owned(format!("X-{name}")),
            false => Cow::Borrowed(name.as_str()),
        };
        (name, Cow::Borrowed(text.as_str()))
    })
}

pub(crate) fn not_json(error: &serde_json::Error) -> SinkError {
    SinkError::new(
        SinkErrorKind::Invalid,
        format!("the event can't be written as JSON: {error}"),
    )
}

#[cfg(test)]
mod tests;
