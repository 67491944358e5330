//! The payload is unchanged, and everything else is in headers.

use std::borrow::Cow;

use pillarbox::wire;

use super::{Header, Message, own_headers};
use crate::event::StoredEvent;

/// Passes each field of the event except the id to `put`, under its name on the wire. Some sinks have a special place
/// for the id.
pub(crate) fn fields<'a, E>(
    stored: &'a StoredEvent,
    mut put: impl FnMut(&'static str, Cow<'a, str>) -> Result<(), E>,
) -> Result<(), E> {
    let event = &stored.event;
    put(wire::EVENT_TYPE, event.event_type.as_str().into())?;
    put(wire::SCHEMA_VERSION, event.schema_version.to_string().into())?;
    put(wire::AGGREGATE_TYPE, event.aggregate_type.as_str().into())?;
    put(wire::AGGREGATE_ID, event.aggregate_id.as_str().into())?;
    if let Some(version) = event.aggregate_version {
        put(wire::AGGREGATE_VERSION, version.to_string().into())?;
    }
    put(wire::KEY, event.key().into())?;
    put(wire::CREATED_AT, stored.created_at.to_string().into())?;
    if let Some(project) = event.project_id.as_deref() {
        put(wire::PROJECT_ID, project.into())?;
    }
    if let Some(user) = event.user_id.as_deref() {
        put(wire::USER_ID, user.into())?;
    }
    Ok(())
}

pub(super) fn message(stored: &StoredEvent) -> Message<'_> {
    let event = &stored.event;
    let mut headers: Vec<Header<'_>> = Vec::with_capacity(10 + event.headers.len());
    headers.push((wire::ID.into(), event.id.to_string().into()));
    let Ok(()) = fields(stored, |name, text| {
        headers.push((name.into(), text));
        Ok::<(), std::convert::Infallible>(())
    });
    headers.extend(own_headers(&event.headers, |_| false));
    Message {
        key: event.key(),
        headers,
        body: event.payload.clone(),
    }
}
