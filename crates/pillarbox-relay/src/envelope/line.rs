//! An event as one line of JSON, for sinks that people and pipes read. A line has no headers, so every envelope is an
//! object here. `raw` and `pillarbox` are the object with everything. CloudEvents uses its JSON format. `debezium` and
//! shapes have their key, headers and payload.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Envelope, Message,
    cloudevents::Structured,
    debezium, not_json,
    whole::{Place, Whole},
};
use crate::{
    event::StoredEvent,
    sink::{Outgoing, SinkError},
};

/// A message as an object.
#[derive(Serialize)]
struct Fields<'a> {
    topic: &'a str,
    key: &'a str,
    headers: serde_json::Map<String, serde_json::Value>,
    payload: &'a RawValue,
}

impl<'a> Fields<'a> {
    fn of(stored: &'a StoredEvent, message: &'a Message<'a>) -> Result<Self, SinkError> {
        let headers = message.headers.iter();
        Ok(Self {
            topic: &stored.event.topic,
            key: message.key,
            headers: headers
                .map(|(name, text)| (name.to_string(), text.as_ref().into()))
                .collect(),
            payload: serde_json::from_slice(&message.body).map_err(|error| not_json(&error))?,
        })
    }
}

/// Appends the event's line. Line breaks between the tokens of a payload become spaces, so it is the same JSON on one
/// line.
pub(crate) fn write(into: &mut Vec<u8>, outgoing: &Outgoing) -> Result<(), SinkError> {
    let start = into.len();
    if let Err(error) = object(into, outgoing) {
        into.truncate(start);
        return Err(error);
    }
    on_one_line(&mut into[start..]);
    into.push(b'\n');
    Ok(())
}

/// Appends the object with everything, on one line and without a line break.
pub(crate) fn write_entry(into: &mut Vec<u8>, stored: &StoredEvent, place: Place) -> Result<(), SinkError> {
    let start = into.len();
    serde_json::to_writer(&mut *into, &Whole::new(stored, Some(place))).map_err(|error| not_json(&error))?;
    on_one_line(&mut into[start..]);
    Ok(())
}

/// Inside a string, a line break is always escaped. So any other one is white space.
fn on_one_line(json: &mut [u8]) {
    for byte in json {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

fn object(into: &mut Vec<u8>, outgoing: &Outgoing) -> Result<(), SinkError> {
    let stored = &*outgoing.event;
    let written = match &outgoing.envelope {
        Envelope::Raw | Envelope::Pillarbox => serde_json::to_writer(&mut *into, &Whole::new(stored, None)),
        Envelope::CloudEvents { source, .. } => {
            let structured = Structured::new(outgoing, source.as_deref())?;
            serde_json::to_writer(&mut *into, &structured)
        }
        Envelope::Debezium => {
            serde_json::to_writer(&mut *into, &Fields::of(stored, &debezium::message(stored))?)
        }
        Envelope::Shape(shape) => {
            serde_json::to_writer(&mut *into, &Fields::of(stored, &shape.message(stored)?)?)
        }
    };
    written.map_err(|error| not_json(&error))
}
