//! Events as parameters of the statements: an array per column, or the fields of a single event.

use crate::{enqueue::EnqueueError, event::Event};

/// PostgreSQL's calendar begins in 4713 BC; an earlier `available_at` is simply due.
const YEAR_1: i64 = -62_135_596_800_000_000;

/// In the order of the parameters.
pub(super) struct Columns<'a> {
    pub(super) id: Vec<String>,
    pub(super) topic: Vec<&'a str>,
    pub(super) stream: Vec<Option<&'a str>>,
    pub(super) event_type: Vec<&'a str>,
    pub(super) schema_version: Vec<i32>,
    pub(super) aggregate_type: Vec<&'a str>,
    pub(super) aggregate_id: Vec<&'a str>,
    pub(super) aggregate_version: Vec<Option<i64>>,
    pub(super) partition_key: Vec<Option<&'a str>>,
    pub(super) payload: Vec<&'a str>,
    pub(super) headers: Vec<String>,
    pub(super) project_id: Vec<Option<&'a str>>,
    pub(super) user_id: Vec<Option<&'a str>>,
    /// Microseconds since 1970.
    pub(super) available_at: Vec<Option<i64>>,
    pub(super) max_attempts: Vec<Option<i32>>,
    pub(super) base_delay_ms: Vec<Option<i64>>,
    pub(super) max_delay_ms: Vec<Option<i64>>,
    pub(super) backoff_multiplier: Vec<Option<f64>>,
    pub(super) channel: String,
    /// The topics to check the backpressure for.
    pub(super) topics: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(
        events: &'a [Event],
        topics: Vec<&'a str>,
        channel: String,
    ) -> Result<Self, EnqueueError> {
        Ok(Self {
            id: column(events, |e| e.id.to_string()),
            topic: column(events, |e| e.topic.as_str()),
            stream: column(events, |e| e.stream.as_deref()),
            event_type: column(events, |e| e.event_type.as_str()),
            schema_version: column(events, |e| e.schema_version),
            aggregate_type: column(events, |e| e.aggregate_type.as_str()),
            aggregate_id: column(events, |e| e.aggregate_id.as_str()),
            aggregate_version: column(events, |e| e.aggregate_version),
            partition_key: column(events, |e| e.partition_key.as_deref()),
            payload: events.iter().map(payload).collect::<Result<_, _>>()?,
            headers: events.iter().map(headers).collect::<Result<_, _>>()?,
            project_id: column(events, |e| e.project_id.as_deref()),
            user_id: column(events, |e| e.user_id.as_deref()),
            available_at: column(events, available_at),
            max_attempts: column(events, |e| e.retry.max_attempts),
            base_delay_ms: column(events, |e| e.retry.base_delay_ms),
            max_delay_ms: column(events, |e| e.retry.max_delay_ms),
            backoff_multiplier: column(events, |e| e.retry.backoff_multiplier),
            channel,
            topics,
        })
    }
}

/// One event as parameters of `insert_one.sql`, in their order.
pub(super) struct Row<'a> {
    pub(super) event: &'a Event,
    pub(super) id: String,
    pub(super) payload: &'a str,
    pub(super) headers: String,
    /// Microseconds since 1970.
    pub(super) available_at: Option<i64>,
    pub(super) channel: String,
    /// Whether to check the backpressure for its topic.
    pub(super) asked: Option<&'a str>,
}

impl<'a> Row<'a> {
    pub(super) fn of(event: &'a Event, asked: bool, channel: String) -> Result<Self, EnqueueError> {
        Ok(Self {
            event,
            id: event.id.to_string(),
            payload: payload(event)?,
            headers: headers(event)?,
            available_at: available_at(event),
            channel,
            asked: asked.then_some(&event.topic),
        })
    }
}

fn column<'a, T>(events: &'a [Event], field: impl Fn(&'a Event) -> T) -> Vec<T> {
    events.iter().map(field).collect()
}

/// It was checked to be JSON before, and so UTF-8.
fn payload(event: &Event) -> Result<&str, EnqueueError> {
    std::str::from_utf8(&event.payload).map_err(|e| EnqueueError::Database(e.into()))
}

fn headers(event: &Event) -> Result<String, EnqueueError> {
    serde_json::to_string(&event.headers).map_err(|e| EnqueueError::Database(e.into()))
}

fn available_at(event: &Event) -> Option<i64> {
    event.available_at.map(|at| at.as_microsecond().max(YEAR_1))
}
