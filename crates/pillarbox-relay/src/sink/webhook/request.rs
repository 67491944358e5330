//! An event as a request.
//!
//! The producer's own headers keep their names. There is one exception: headers that HTTP, the signature or the
//! configuration uses get the prefix `X-`, so that a producer can't change the request.

use std::borrow::Cow;

use bytes::Bytes;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pillarbox::wire;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::{
    envelope::{self, Binding, Envelope},
    signature::{Secret, sign},
    sink::{Outgoing, SinkError, SinkErrorKind},
};

/// The HTTP binding of CloudEvents.
const CLOUDEVENTS: Binding = Binding {
    prefix: wire::cloudevents::HTTP_PREFIX,
    escapes: true,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The headers of the signature begin with this.
const SIGNATURE_PREFIX: &str = "webhook-";
/// Headers that describe the request and not the event.
const RESERVED: [&str; 18] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-http-method-override",
];
/// What is escaped in a value that HTTP does not allow, besides characters that are not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// The headers and the body.
pub(super) fn of(
    outgoing: &Outgoing,
    configured: &HeaderMap,
    secrets: &[Secret],
) -> Result<(HeaderMap, Bytes), SinkError> {
    let event = &outgoing.event.event;
    let message = envelope::message(outgoing, CLOUDEVENTS)?;
    let mut headers = HeaderMap::with_capacity(message.headers.len() + configured.len() + 4);
    for (name, text) in &message.headers {
        headers.append(free_name(name, configured)?, value(name, text)?);
    }
    if outgoing.envelope == Envelope::Raw {
        headers.insert(name_of(wire::TOPIC)?, value(wire::TOPIC, &event.topic)?);
    }
    if !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, JSON);
    }
    let (id, now) = (event.id.to_string(), Timestamp::now().as_second());
    // The receiver checks the signature with the id as the header has it.
    let id = value("webhook-id", &id)?;
    if !secrets.is_empty() {
        let signature = sign(secrets, id.to_str().unwrap_or_default(), now, &message.body);
        headers.insert("webhook-signature", value("webhook-signature", &signature)?);
    }
    headers.insert("webhook-timestamp", HeaderValue::from(now));
    headers.insert("webhook-id", id);
    for (name, value) in configured {
        headers.insert(name, value.clone());
    }
    Ok((headers, message.body))
}

fn free_name(name: &str, configured: &HeaderMap) -> Result<HeaderName, SinkError> {
    let lower = name.to_ascii_lowercase();
    let taken = RESERVED.contains(&&*lower)
        || lower.starts_with(SIGNATURE_PREFIX)
        || configured.contains_key(&*lower);
    match taken {
        true => name_of(&format!("x-{lower}")),
        false => name_of(&lower),
    }
}

fn name_of(name: &str) -> Result<HeaderName, SinkError> {
    name.parse().map_err(|_| {
        SinkError::new(
            SinkErrorKind::Invalid,
            format!("{name:?} can't be the name of an HTTP header"),
        )
    })
}

/// A value of one of our own headers is always escaped, so that a receiver can always decode it. A producer's value is
/// only escaped if HTTP does not allow it: `baggage` and others have escapes of their own.
fn value(name: &str, text: &str) -> Result<HeaderValue, SinkError> {
    let allowed = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text;
    let ours = wire::starts_with(name, wire::PREFIX);
    let written = match allowed && !(ours && text.contains('%')) {
        true => Cow::Borrowed(text),
        false => utf8_percent_encode(text, ESCAPED).into(),
    };
    HeaderValue::from_str(&written).map_err(|_| {
        SinkError::new(
            SinkErrorKind::Invalid,
            format!("the value of {name} can't be written as an HTTP header"),
        )
    })
}
