//! The kinds of events: which ones occur among the latest events, where they go, which schema they must match, and an
//! example of each.

pub mod mask;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use pillarbox::Event;
use serde::Serialize;
use serde_json::Value;

use crate::{
    check::Checks,
    route::Routes,
    store::{Admin, StoreError},
};

/// How many kinds are listed. If event types contain ids, there are more, but a longer list would not help.
pub const KINDS_MAX: usize = 1_000;
/// How many of the latest events may be read.
pub const LAST_MAX: usize = 1_000_000;
/// A larger payload is not used as an example.
pub const EXAMPLE_BYTES_MAX: usize = 16 * 1024;

/// What a store found among its latest events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// How many events were read.
    pub events: u64,
    /// When the oldest of them was written.
    pub since: Option<Timestamp>,
    /// The most frequent first, at most [`KINDS_MAX`].
    pub kinds: Vec<Kind>,
}

/// Events of one type and version, to one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    pub event_type: String,
    pub schema_version: i32,
    pub topic: String,
    /// If the events name one themselves.
    pub stream: Option<String>,
    pub count: u64,
    pub last_seen: Timestamp,
    /// From the latest of these events.
    pub aggregate_type: String,
    /// From the same event, unless it is larger than [`EXAMPLE_BYTES_MAX`].
    pub payload: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Catalog {
    /// How many of the latest events were read.
    pub looked_at: u64,
    /// When the oldest of them was written.
    pub since: Option<Timestamp>,
    /// Whether there are more kinds than are listed.
    pub more: bool,
    pub kinds: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entry {
    pub event_type: String,
    pub schema_version: i32,
    pub topic: String,
    pub aggregate_type: String,
    /// `None`: no route matches the topic.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub sink: Option<Arc<str>>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub stream: Option<Arc<str>>,
    /// `None`: the payload is not checked against a schema.
    pub schema: Option<String>,
    pub count: u64,
    /// Over the time since the oldest event that was read.
    pub per_second: f64,
    pub last_seen: Timestamp,
    /// The latest payload with its values masked.
    pub example: Option<Value>,
}

impl Catalog {
    /// Reads the latest `last` events.
    pub async fn of(
        admin: &dyn Admin,
        last: usize,
        routes: &Routes,
        checks: Option<&Checks>,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let look = admin.kinds(last.min(LAST_MAX)).await?;
        let events: Vec<Event> = look.kinds.iter().map(event).collect();
        let schemas = match checks {
            Some(checks) => checks.schema_names(&events).await,
            None => vec![None; events.len()],
        };
        let span = span(look.since, now);
        let entries = look.kinds.into_iter().zip(&events).zip(schemas);
        let entry = |((kind, event), schema): ((Kind, &Event), Option<String>)| {
            let target = routes.matching(event);
            Entry {
                sink: target.as_ref().map(|to| to.sink.clone()),
                stream: target.and_then(|to| to.stream),
                per_second: kind.count as f64 / span.as_secs_f64(),
                example: kind.payload.as_deref().and_then(mask::masked),
                schema,
                event_type: kind.event_type,
                schema_version: kind.schema_version,
                topic: kind.topic,
                aggregate_type: kind.aggregate_type,
                count: kind.count,
                last_seen: kind.last_seen,
            }
        };
        let kinds: Vec<Entry> = entries.map(entry).collect();
        Ok(Self {
            looked_at: look.events,
            since: look.since,
            more: kinds.len() == KINDS_MAX,
            kinds,
        })
    }
}

/// An event with the fields that routes and schemas need.
fn event(kind: &Kind) -> Event {
    let mut event = Event::to(&kind.topic)
        .event_type(&kind.event_type)
        .aggregate(&kind.aggregate_type, "-")
        .schema_version(kind.schema_version);
    event.stream.clone_from(&kind.stream);
    event
}

/// At least one second, because a rate over a shorter time says nothing.
fn span(since: Option<Timestamp>, now: Timestamp) -> Duration {
    let since = since.map(|since| now.duration_since(since));
    since
        .and_then(|span| Duration::try_from(span).ok())
        .unwrap_or_default()
        .max(Duration::from_secs(1))
}
