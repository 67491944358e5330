//! What an event looks like on the other side: which of its fields are headers, and what the body is.
//!
//! Sinks whose wire has headers carry a [`Message`]: a key, headers, a body. Sinks that write lines have no headers: they
//! carry a `line`, one JSON object. Which of an event's fields stand where is decided here, by its route;
//! how they are written on a wire is the sink's own affair.

mod cloudevents;
mod debezium;
pub(crate) mod line;
pub(crate) mod raw;
mod whole;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;

use crate::sink::{Outgoing, SinkError, SinkErrorKind};

/// How a route wraps its events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Envelope {
    /// The payload is the body, byte for byte; the rest are headers.
    #[default]
    Raw,
    /// CloudEvents 1.0.
    CloudEvents {
        mode: Mode,
        /// Where its events happen; `/<aggregate_type>` unless given.
        source: Option<Arc<str>>,
    },
    /// One JSON object with everything.
    Pillarbox,
    /// What Debezium's outbox event router emits: the payload, with the headers `id` and `eventType`.
    Debezium,
}

/// How a CloudEvent is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The payload is the body, attributes are headers.
    Binary,
    /// One JSON object with the attributes and the payload as `data`.
    Structured,
}

/// How a sink writes the headers of CloudEvents, as the binding of its protocol says. Each sink has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Before the names of attributes: `ce_`.
    pub prefix: &'static str,
    /// Headers hold ASCII only: values are escaped as in HTTP.
    pub escapes: bool,
}

/// An event as it goes over a wire that has headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    pub key: &'a str,
    /// The envelope's own first: a producer's header never has one of their names.
    pub headers: Vec<Header<'a>>,
    pub body: Bytes,
}

pub type Header<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The event in its route's envelope.
pub fn message(outgoing: &Outgoing, binding: Binding) -> Result<Message<'_>, SinkError> {
    let stored = &*outgoing.event;
    match &outgoing.envelope {
        Envelope::Raw => Ok(raw::message(stored)),
        Envelope::CloudEvents { mode, source } => {
            cloudevents::message(stored, *mode, source.as_deref(), binding)
        }
        Envelope::Pillarbox => whole::message(stored),
        Envelope::Debezium => Ok(debezium::message(stored)),
    }
}

/// The producer's own headers. Those that would pass for the envelope's, which consumers trust, have `X-` before their names.
fn own_headers<'a>(
    headers: &'a std::collections::BTreeMap<String, String>,
    taken: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Header<'a>> {
    headers.iter().map(move |(name, text)| {
        let name = match taken(name) {
            true => Cow::Owned(format!("X-{name}")),
            false => Cow::Borrowed(name.as_str()),
        };
        (name, Cow::Borrowed(text.as_str()))
    })
}

fn not_json(error: &serde_json::Error) -> SinkError {
    SinkError::new(
        SinkErrorKind::Invalid,
        format!("the event can't be written as JSON: {error}"),
    )
}

#[cfg(test)]
mod tests;
