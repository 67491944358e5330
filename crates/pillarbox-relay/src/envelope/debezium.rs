//! The format of Debezium's outbox event router: the payload, the key, and the headers `id` and `eventType` (the event
//! router's `table.fields.additional.placement: type:header:eventType`). The producer's own headers are included.

use pillarbox::wire::debezium::{EVENT_TYPE, ID};

use super::{Message, own_headers};
use crate::event::StoredEvent;

pub(super) fn message(stored: &StoredEvent) -> Message<'_> {
    let event = &stored.event;
    let ours = |name: &str| name.eq_ignore_ascii_case(ID) || name.eq_ignore_ascii_case(EVENT_TYPE);
    let mut headers = vec![
        (ID.into(), event.id.to_string().into()),
        (EVENT_TYPE.into(), event.event_type.as_str().into()),
    ];
    headers.extend(own_headers(&event.headers, ours));
    Message {
        key: event.key(),
        headers,
        body: event.payload.clone(),
    }
}
