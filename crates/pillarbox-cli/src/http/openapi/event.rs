//! The description of an event. The type itself is in the library for applications, which knows nothing of
//! OpenAPI; a test compares the names.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// An event, as its producer writes it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Event, example = json!({
    "topic": "shop.order.placed", "event_type": "OrderPlaced", "aggregate_type": "order", "aggregate_id": "o-1",
    "payload": { "total": 990 }, "project_id": "shop",
}))]
#[allow(dead_code, reason = "it only describes the event")]
pub(in crate::http) struct EventBody {
    /// The idempotency key: any text, made once by the producer, the same at every attempt. A new UUID unless given.
    #[serde(default)]
    #[schema(max_length = 255)]
    id: String,
    /// The target: a NATS subject or a Kafka topic. Routes match on it.
    topic: String,
    /// The stream at the receiver, if the routes are not to choose it.
    stream: Option<String>,
    /// What happened: `OrderPlaced`.
    event_type: String,
    /// The version of the payload's schema: 1 unless given.
    #[serde(default)]
    schema_version: i32,
    /// The type of the aggregate: `order`.
    aggregate_type: String,
    /// The id of the aggregate.
    aggregate_id: String,
    /// The aggregate's version after the change.
    aggregate_version: Option<i64>,
    /// The unit of order. Without it, the aggregate's id is used.
    partition_key: Option<String>,
    /// Any JSON. It is passed to the sink byte for byte.
    payload: Value,
    /// Trace context (`traceparent`, `tracestate`), `correlation-id`, and any others.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The project of the event.
    project_id: Option<String>,
    /// The user who caused it.
    user_id: Option<String>,
    /// A time in the future makes it a delayed event.
    available_at: Option<Timestamp>,
    /// Attempts before it becomes a dead letter.
    max_attempts: Option<i32>,
    /// The wait after the first failure.
    base_delay_ms: Option<i64>,
    /// The longest wait.
    max_delay_ms: Option<i64>,
    /// The factor by which each wait grows.
    backoff_multiplier: Option<f64>,
}

/// One event, or a list of at most 10,000.
#[derive(ToSchema)]
#[schema(as = Events)]
#[serde(untagged)]
#[allow(dead_code, reason = "it only describes the body")]
pub(in crate::http) enum EventsBody {
    One(Box<EventBody>),
    Many(Vec<EventBody>),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pillarbox::Event;
    use serde_json::json;
    use utoipa::PartialSchema as _;

    use super::*;

    #[test]
    fn the_description_has_the_names_of_the_event() {
        let full = json!({
            "id": "payout-42", "topic": "t.x", "stream": "S", "event_type": "X", "schema_version": 2,
            "aggregate_type": "a", "aggregate_id": "1", "aggregate_version": 3, "partition_key": "k",
            "payload": { "n": 1 }, "headers": { "a": "b" }, "project_id": "p", "user_id": "u",
            "available_at": "2026-01-31T12:00:00Z", "max_attempts": 3, "base_delay_ms": 1, "max_delay_ms": 2,
            "backoff_multiplier": 2.0,
        });
        let event: Event = serde_json::from_value(full.clone()).unwrap();
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            full,
            "every field is in this example"
        );
        assert!(serde_json::from_value::<EventBody>(full.clone()).is_ok());
        let schema = serde_json::to_value(EventBody::schema()).unwrap();
        let names =
            |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
        assert_eq!(names(&schema["properties"]), names(&full));
        for required in schema["required"].as_array().unwrap() {
            let mut without = full.clone();
            without
                .as_object_mut()
                .unwrap()
                .remove(required.as_str().unwrap());
            assert!(
                serde_json::from_value::<Event>(without).is_err(),
                "{required} is required"
            );
        }
    }
}
