//! What an event looks like on the other side: which of its fields are headers, and what the body is.
//!
//! A sink carries a [`Message`]: a key, headers in their order, a body. How these are written on its wire is the sink's own
//! affair (NATS has header rules of its own, stdout has lines); which there are is decided here, by the route.

use std::borrow::Cow;

use bytes::Bytes;

use crate::sink::{Outgoing, SinkError};

/// How a route wraps its events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Envelope {
    /// The payload is the body, byte for byte; the rest are headers.
    #[default]
    Raw,
}

/// An event as it goes over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    pub key: &'a str,
    /// No name twice.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub body: Bytes,
}

/// The event in its route's envelope.
pub fn message(outgoing: &Outgoing) -> Result<Message<'_>, SinkError> {
    let stored = &*outgoing.event;
    let event = &stored.event;
    let mut headers: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::with_capacity(9 + event.headers.len());
    headers.push(("Pillarbox-Id".into(), event.id.to_string().into()));
    headers.push(("Pillarbox-Event-Type".into(), event.event_type.as_str().into()));
    Ok(Message {
        key: event.key(),
        headers,
        body: event.payload.clone(),
    })
}
