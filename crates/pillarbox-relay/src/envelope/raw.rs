//! The payload as it is; everything else beside it.

use pillarbox::wire;

use super::{Header, Message, own_headers};
use crate::event::StoredEvent;

pub(super) fn message(stored: &StoredEvent) -> Message<'_> {
    let event = &stored.event;
    let mut headers: Vec<Header<'_>> = Vec::with_capacity(10 + event.headers.len());
    headers.push((wire::ID.into(), event.id.to_string().into()));
    headers.push((wire::EVENT_TYPE.into(), event.event_type.as_str().into()));
    headers.push((
        wire::SCHEMA_VERSION.into(),
        event.schema_version.to_string().into(),
    ));
    headers.push((wire::AGGREGATE_TYPE.into(), event.aggregate_type.as_str().into()));
    headers.push((wire::AGGREGATE_ID.into(), event.aggregate_id.as_str().into()));
    if let Some(version) = event.aggregate_version {
        headers.push((wire::AGGREGATE_VERSION.into(), version.to_string().into()));
    }
    headers.push((wire::KEY.into(), event.key().into()));
    headers.push((wire::CREATED_AT.into(), stored.created_at.to_string().into()));
    if let Some(project) = event.project_id.as_deref() {
        headers.push((wire::PROJECT_ID.into(), project.into()));
    }
    if let Some(user) = event.user_id.as_deref() {
        headers.push((wire::USER_ID.into(), user.into()));
    }
    headers.extend(own_headers(&event.headers, |name| {
        wire::starts_with(name, wire::PREFIX)
    }));
    Message {
        key: event.key(),
        headers,
        body: event.payload.clone(),
    }
}
