//! An event, as the application writes it.

mod builder;
mod first_use;
mod id;
#[cfg(any(feature = "consume", feature = "follow"))]
pub(crate) mod whole;

use std::collections::BTreeMap;

use crate::wire;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::first_use::FirstUse;
pub use self::{
    builder::{ToTopic, Typed},
    id::EventId,
};

/// One event, as its producer writes it. The relay adds its place in the outbox and the state of its
/// delivery.
///
/// The JSON form uses these names (NDJSON of `pillarbox enqueue`, of the stream and of stdout).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The idempotency key: made once by the producer, the same at every attempt.
    #[serde(default = "EventId::new")]
    pub id: EventId,
    /// The target: a NATS subject or a Kafka topic. Routes match on it.
    pub topic: String,
    /// The stream at the receiver, if the routes are not to choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// What happened: `OrderPlaced`.
    pub event_type: String,
    /// The version of the payload's schema: 1 unless given.
    #[serde(default = "first_version")]
    pub schema_version: i32,
    /// The type of the aggregate: `order`.
    pub aggregate_type: String,
    /// The id of the aggregate.
    pub aggregate_id: String,
    /// The aggregate's version after the change. Consumers may refuse stale versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_version: Option<i64>,
    /// The unit of order. Without it, the aggregate's id is used: see [`Event::key`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// JSON text. It is passed to the sink byte for byte.
    #[serde(with = "payload_json")]
    pub payload: Bytes,
    /// Trace context (`traceparent`, `tracestate`), `correlation-id`, and any others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The project of the event. Consumers get it unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// The user who caused it. Consumers get it unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// A time in the future makes it a delayed event. It takes its place in its key's order when that time
    /// comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_at: Option<Timestamp>,
    /// Its own retry settings.
    #[serde(flatten)]
    pub retry: RetryOverrides,
    #[serde(skip)]
    pub(crate) first_use: FirstUse,
}

/// Retry settings of a single event; `None` uses the policy's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryOverrides {
    /// Attempts before it becomes a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// The wait after the first failure, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_delay_ms: Option<i64>,
    /// The longest wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<i64>,
    /// The factor by which each wait grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_multiplier: Option<f64>,
}

impl RetryOverrides {
    /// Sets the number of attempts.
    pub fn max_attempts(mut self, attempts: i32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets the wait after the first failure.
    pub fn base_delay_ms(mut self, millis: i64) -> Self {
        self.base_delay_ms = Some(millis);
        self
    }

    /// Sets the longest wait.
    pub fn max_delay_ms(mut self, millis: i64) -> Self {
        self.max_delay_ms = Some(millis);
        self
    }

    /// Sets the factor by which each wait grows.
    pub fn backoff_multiplier(mut self, factor: f64) -> Self {
        self.backoff_multiplier = Some(factor);
        self
    }
}

impl Event {
    /// Sets the payload to the JSON of any serde value.
    pub fn json<T: Serialize + ?Sized>(mut self, payload: &T) -> Result<Self, serde_json::Error> {
        self.payload = serde_json::to_vec(payload)?.into();
        Ok(self)
    }

    /// Sets the payload to existing JSON text; `enqueue` checks that it is JSON.
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Changes the topic.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// Sets the id: that of an event made earlier, or one derived from its content.
    pub fn id(mut self, id: impl Into<EventId>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the unit of order, in place of the aggregate's id.
    pub fn partition_key(mut self, key: impl Into<String>) -> Self {
        self.partition_key = Some(key.into());
        self
    }

    /// Sets the aggregate's version after the change.
    pub fn aggregate_version(mut self, version: i64) -> Self {
        self.aggregate_version = Some(version);
        self
    }

    /// Sets the version of the payload's schema.
    pub fn schema_version(mut self, version: i32) -> Self {
        self.schema_version = version;
        self
    }

    /// Sets the stream, in place of the one that the routes choose.
    pub fn stream(mut self, stream: impl Into<String>) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// Sets a header; of two with the same name, the later one counts.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the project's id.
    pub fn project_id(mut self, project_id: impl Into<String>) -> Self {
        self.project_id = Some(project_id.into());
        self
    }

    /// Sets the user's id.
    pub fn user_id(mut self, user_id: impl Into<String>) -> Self {
        self.user_id = Some(user_id.into());
        self
    }

    /// Sets the time before which it is not delivered.
    pub fn available_at(mut self, at: Timestamp) -> Self {
        self.available_at = Some(at);
        self
    }

    /// Sets its own retry settings.
    pub fn retry(mut self, retry: RetryOverrides) -> Self {
        self.retry = retry;
        self
    }

    /// Marks this event as caused by another one: it belongs to the same trace and the same business process.
    /// Copies `traceparent`, `tracestate` and `correlation-id` if they are not set, and writes the id of the
    /// cause into `causation-id`. The id of the first event of a process becomes the correlation id. In a
    /// consumer's handler the cause is the received event.
    pub fn follows(mut self, cause: &Event) -> Self {
        if self.header_text(wire::TRACEPARENT).is_none() {
            for name in [wire::TRACEPARENT, wire::TRACESTATE] {
                if let Some(text) = cause.header_text(name) {
                    self.headers.insert(name.to_owned(), text.to_owned());
                }
            }
        }
        if self.header_text(wire::CORRELATION_ID).is_none() {
            let correlation = cause.header_text(wire::CORRELATION_ID);
            let correlation = correlation.map_or_else(|| cause.id.to_string(), str::to_owned);
            self.headers.insert(wire::CORRELATION_ID.to_owned(), correlation);
        }
        self.header(wire::CAUSATION_ID, cause.id.to_string())
    }

    /// The text of a header; names are case-insensitive.
    pub(crate) fn header_text(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, text) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(text)
    }

    /// The key whose events are delivered in order: the partition key, or else the aggregate's id.
    pub fn key(&self) -> &str {
        self.partition_key.as_deref().unwrap_or(&self.aggregate_id)
    }
}

fn first_version() -> i32 {
    1
}

/// In the JSON form the payload is JSON, not a string that contains JSON.
mod payload_json {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
    use serde_json::value::RawValue;

    pub(super) fn serialize<S: Serializer>(payload: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_slice::<&RawValue>(payload)
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Bytes::from(String::from(Box::<str>::from(raw))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_keeps_the_payloads_bytes() {
        let event = Event::to("t.x")
            .event_type("X")
            .aggregate("thing", "1")
            .payload(r#"{"b": 1.50, "a":[ ]}"#)
            .header("traceparent", "00-x");
        let text = serde_json::to_string(&event).unwrap();
        let back: Event = serde_json::from_str(&text).unwrap();
        assert_eq!(back, event);
        assert_eq!(&back.payload[..], br#"{"b": 1.50, "a":[ ]}"#);
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let text = r#"{"topic":"t","event_type":"X","aggregate_type":"a","aggregate_id":"1","payload":{},"colour":1}"#;
        assert!(
            serde_json::from_str::<Event>(text)
                .unwrap_err()
                .to_string()
                .contains("colour")
        );
    }

    #[test]
    fn what_follows_belongs_to_the_same_trace_and_process() {
        let first = Event::to("t")
            .event_type("X")
            .aggregate("order", "o-1")
            .header("Traceparent", "00-x")
            .header("tracestate", "a=b");
        let second = Event::to("t")
            .event_type("Y")
            .aggregate("order", "o-1")
            .follows(&first);
        let third = Event::to("t")
            .event_type("Z")
            .aggregate("order", "o-1")
            .header("traceparent", "00-own")
            .follows(&second);
        let (one, two) = (first.id.to_string(), second.id.to_string());
        let header = |event: &Event, name: &str| event.headers.get(name).cloned().unwrap_or_default();
        for (event, cause, trace, state) in [(&second, &one, "00-x", "a=b"), (&third, &two, "00-own", "")] {
            assert_eq!(header(event, "correlation-id"), one, "the whole chain");
            assert_eq!(header(event, "causation-id"), *cause);
            assert_eq!(
                (
                    header(event, "traceparent").as_str(),
                    header(event, "tracestate").as_str()
                ),
                (trace, state)
            );
        }
    }

    #[test]
    fn the_key_defaults_to_the_aggregates_id() {
        let event = Event::to("t").event_type("X").aggregate("order", "o-1");
        assert_eq!(event.key(), "o-1");
        assert_eq!(event.partition_key("customer-7").key(), "customer-7");
    }
}
