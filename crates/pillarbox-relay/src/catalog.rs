//! Which kinds of events there are: what was seen among the latest, where it goes, which schema it must fit, and what it
//! looks like.

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

/// Kinds that are told of. Whoever puts an id into an event's type has more, and no use for them.
pub const KINDS_MAX: usize = 1_000;
/// How far back a look may go.
pub const LAST_MAX: usize = 1_000_000;
/// A larger payload is no example.
pub const EXAMPLE_BYTES_MAX: usize = 16 * 1024;

/// What a store saw among its latest events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// How many events it looked at.
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
    /// Where the events themselves name it.
    pub stream: Option<String>,
    pub count: u64,
    pub last_seen: Timestamp,
    /// Of the latest of them.
    pub aggregate_type: String,
    /// The same one's, unless it is over [`EXAMPLE_BYTES_MAX`].
    pub payload: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Catalog {
    /// How many of the latest events were looked at.
    pub looked_at: u64,
    /// When the oldest of them was written.
    pub since: Option<Timestamp>,
    /// Whether there are more kinds than are listed.
    pub more: bool,
    pub kinds: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    pub event_type: String,
    pub schema_version: i32,
    pub topic: String,
    pub aggregate_type: String,
    /// `None`: no route takes the topic.
    pub sink: Option<Arc<str>>,
    pub stream: Option<Arc<str>>,
    /// `None`: nothing is asked of the payload.
    pub schema: Option<String>,
    pub count: u64,
    /// Over the time since the oldest event that was looked at.
    pub per_second: f64,
    pub last_seen: Timestamp,
    /// The latest payload, its values masked.
    pub example: Option<Value>,
}

impl Catalog {
    /// Looks at the latest events, as many as `last`.
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
            let destination = routes.destination(event);
            Entry {
                sink: destination.as_ref().map(|to| to.sink.clone()),
                stream: destination.and_then(|to| to.stream),
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

/// As much of an event as routes and schemas ask for.
fn event(kind: &Kind) -> Event {
    let mut event = Event::to(&kind.topic)
        .event_type(&kind.event_type)
        .aggregate(&kind.aggregate_type, "-")
        .schema_version(kind.schema_version);
    event.stream.clone_from(&kind.stream);
    event
}

/// At least a second: of a moment nobody can tell a rate.
fn span(since: Option<Timestamp>, now: Timestamp) -> Duration {
    let since = since.map(|since| now.duration_since(since));
    since
        .and_then(|span| Duration::try_from(span).ok())
        .unwrap_or_default()
        .max(Duration::from_secs(1))
}
