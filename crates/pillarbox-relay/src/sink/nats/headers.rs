//! Writes an event as headers and a body: the raw envelope here, the others through `envelope`.
//!
//! The producer's own headers keep their names. There are two exceptions: the server obeys headers that begin with
//! `Nats-` (a rollup would purge the stream), and consumers trust those that begin with `Pillarbox-`. These arrive with
//! the prefix `X-`, so that nothing is lost and nothing is obeyed. A value may be any UTF-8 text on one line.

use async_nats::{HeaderMap, HeaderName, HeaderValue, header};
use bytes::Bytes;
use pillarbox::wire;

use crate::{
    envelope::{self, Binding, Envelope, raw},
    sink::{Outgoing, SinkError, SinkErrorKind},
};

/// The NATS binding of CloudEvents.
const CLOUDEVENTS: Binding = Binding {
    prefix: wire::cloudevents::NATS_PREFIX,
    escapes: true,
};

const RESERVED: [&str; 2] = [wire::NATS_PREFIX, wire::PREFIX];

/// The headers and the body of an event.
pub(super) fn message(outgoing: &Outgoing) -> Result<(HeaderMap, Bytes), SinkError> {
    if outgoing.envelope == Envelope::Raw {
        return Ok((raw_headers(outgoing)?, outgoing.event.event.payload.clone()));
    }
    let message = envelope::message(outgoing, CLOUDEVENTS)?;
    let mut map = HeaderMap::new();
    // In reverse order: of two headers with one name, the first in the list counts.
    for (name, text) in message.headers.iter().rev() {
        map.insert(free_name(name)?, value(name, text)?);
    }
    server_headers(&mut map, outgoing)?;
    Ok((map, message.body))
}

/// Headers that the server obeys: the id for dropping copies, and the stream that must store the event.
fn server_headers(map: &mut HeaderMap, outgoing: &Outgoing) -> Result<(), SinkError> {
    map.insert(header::NATS_MESSAGE_ID, outgoing.event.event.id.to_string());
    if let Some(stream) = outgoing.stream.as_deref() {
        map.insert(header::NATS_EXPECTED_STREAM, value("stream", stream)?);
    }
    Ok(())
}

/// The headers of the raw envelope, made without a list in between, because they take a third of the relay's time.
pub fn raw_headers(outgoing: &Outgoing) -> Result<HeaderMap, SinkError> {
    let stored = &outgoing.event;
    let event = &stored.event;
    let mut map = HeaderMap::new();
    // First, so that a producer's header can't replace one of ours.
    for (name, text) in &event.headers {
        if !name.starts_with(envelope::ROW_PREFIX) {
            map.insert(free_name(name)?, value(name, text)?);
        }
    }
    server_headers(&mut map, outgoing)?;
    raw::fields(stored, |name, text| {
        map.insert(HeaderName::from_static(name), value(name, &text)?);
        Ok::<_, SinkError>(())
    })?;
    Ok(map)
}

fn free_name(name: &str) -> Result<HeaderName, SinkError> {
    let invalid = || {
        SinkError::new(
            SinkErrorKind::Invalid,
            format!(
                "{name:?} can't be a header's name: only visible ASCII characters without `:` are allowed"
            ),
        )
    };
    if name.is_empty() || name.bytes().any(|b| !b.is_ascii_graphic() || b == b':') {
        return Err(invalid());
    }
    if RESERVED.iter().any(|prefix| wire::starts_with(name, prefix)) {
        return format!("X-{name}").parse().map_err(|_| invalid());
    }
    name.parse().map_err(|_| invalid())
}

fn value(of: &str, text: &str) -> Result<HeaderValue, SinkError> {
    text.parse().map_err(|_| {
        SinkError::new(
            SinkErrorKind::Invalid,
            format!("the value of {of} contains a line break, which a NATS header can't contain"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pillarbox::Event;
    use proptest::prelude::*;

    use super::*;
    use crate::StoredEvent;

    fn outgoing(event: Event) -> Outgoing {
        let stored = StoredEvent {
            seq: 1,
            lane: 0,
            attempts: 0,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            event,
        };
        Outgoing {
            stream: Some("SHOP".into()),
            ..Outgoing::new(Arc::new(stored))
        }
    }

    fn event() -> Event {
        Event::to("shop.placed")
            .event_type("OrderPlaced")
            .aggregate("order", "o-1")
    }

    #[test]
    fn an_event_carries_its_fields_and_its_own_headers() {
        let event = event()
            .aggregate_version(3)
            .project_id("p")
            .user_id("Zoë")
            .header("traceparent", "00-ab-cd-01")
            .header("correlation-id", "größer");
        let id = event.id.to_string();
        let map = raw_headers(&outgoing(event)).unwrap();
        for (name, expected) in [
            ("Nats-Msg-Id", id.as_str()),
            ("Nats-Expected-Stream", "SHOP"),
            ("Pillarbox-Event-Type", "OrderPlaced"),
            ("Pillarbox-Schema-Version", "1"),
            ("Pillarbox-Aggregate-Type", "order"),
            ("Pillarbox-Aggregate-Id", "o-1"),
            ("Pillarbox-Aggregate-Version", "3"),
            ("Pillarbox-Key", "o-1"),
            ("Pillarbox-Created-At", "1970-01-01T00:00:00Z"),
            ("Pillarbox-Project-Id", "p"),
            ("Pillarbox-User-Id", "Zoë"),
            ("traceparent", "00-ab-cd-01"),
            ("correlation-id", "größer"),
        ] {
            assert_eq!(map.get(name).map(HeaderValue::as_str), Some(expected), "{name}");
        }
    }

    #[test]
    fn a_producer_can_not_command_the_server() {
        let event = event()
            .header("Nats-Rollup", "all")
            .header("nats-ttl", "1s")
            .header("Nats-Msg-Id", "other")
            .header("Pillarbox-Key", "other");
        let id = event.id.to_string();
        let map = raw_headers(&outgoing(event)).unwrap();
        assert!(map.get("Nats-Rollup").is_none() && map.get("nats-ttl").is_none());
        assert_eq!(map.get("X-Nats-Rollup").unwrap().as_str(), "all");
        assert_eq!(map.get("X-nats-ttl").unwrap().as_str(), "1s");
        assert_eq!(map.get("Nats-Msg-Id").unwrap().as_str(), id);
        assert_eq!(map.get("Pillarbox-Key").unwrap().as_str(), "o-1");
    }

    #[test]
    fn a_line_break_is_refused_wherever_it_stands() {
        for bad in [
            event().header("x", "a\r\nNats-Rollup: all"),
            event().header("a\nb", "x"),
            event().header("a:b", "x"),
            event().header("größe", "x"),
            event().partition_key("a\nb"),
            event().user_id("a\rb"),
        ] {
            assert_eq!(
                raw_headers(&outgoing(bad)).unwrap_err().kind,
                SinkErrorKind::Invalid
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(name in ".*", text in "(?s).*", key in "(?s).*") {
            let _ = raw_headers(&outgoing(event().header(name, text).partition_key(key)));
        }
    }
}
