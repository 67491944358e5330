//! One JSON object with everything, under the names that `enqueue` and the stream use. The producer's headers are part
//! of it. They are also sent as headers, because tracing expects them there.

use std::borrow::Cow;

use jiff::Timestamp;
use pillarbox::{Event, wire};
use serde::Serialize;

use super::{Message, ROW_PREFIX, not_json, own_headers};
use crate::{
    event::{Seq, StoredEvent},
    event_log::Position,
    sink::SinkError,
};

/// An event's place in the event log.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Place {
    pub(crate) position: Position,
    pub(crate) published_at: Timestamp,
}

/// The JSON object.
#[derive(Serialize)]
pub(super) struct Whole<'a> {
    #[serde(flatten)]
    place: Option<Place>,
    seq: Seq,
    created_at: Timestamp,
    #[serde(flatten)]
    event: Cow<'a, Event>,
}

impl<'a> Whole<'a> {
    pub(super) fn new(stored: &'a StoredEvent, place: Option<Place>) -> Self {
        Self {
            place,
            seq: stored.seq,
            created_at: stored.created_at,
            event: sent(&stored.event),
        }
    }
}

/// The event without the columns that it carries for shapes.
fn sent(event: &Event) -> Cow<'_, Event> {
    let is_carried = |name: &String| name.starts_with(ROW_PREFIX);
    if !event.headers.keys().any(is_carried) {
        return Cow::Borrowed(event);
    }
    let mut sent = event.clone();
    sent.headers.retain(|name, _| !is_carried(name));
    Cow::Owned(sent)
}

pub(super) fn message(stored: &StoredEvent) -> Result<Message<'_>, SinkError> {
    let body = serde_json::to_vec(&Whole::new(stored, None)).map_err(|error| not_json(&error))?;
    let event = &stored.event;
    let mut headers = vec![(wire::CONTENT_TYPE.into(), "application/json".into())];
    headers.extend(own_headers(&event.headers, |name| {
        name.eq_ignore_ascii_case(wire::CONTENT_TYPE)
    }));
    Ok(Message {
        key: event.key(),
        headers,
        body: body.into(),
    })
}
