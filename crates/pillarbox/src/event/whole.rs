//! The JSON object with everything: an event under the names of [`Event`], and what the relay adds.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Event;

/// The names of [`Event`]. A newer relay may write others, which an older reader ignores.
const NAMES: [&str; 18] = [
    "id",
    "topic",
    "stream",
    "event_type",
    "schema_version",
    "aggregate_type",
    "aggregate_id",
    "aggregate_version",
    "partition_key",
    "payload",
    "headers",
    "project_id",
    "user_id",
    "available_at",
    "max_attempts",
    "base_delay_ms",
    "max_delay_ms",
    "backoff_multiplier",
];

/// An event as the relay writes it into one JSON object.
pub(crate) struct Whole {
    pub(crate) event: Event,
    pub(crate) created_at: Option<Timestamp>,
    /// Its place in the event log. Only the stream has it.
    #[cfg_attr(not(feature = "follow"), allow(dead_code))]
    pub(crate) position: Option<i64>,
    #[cfg_attr(not(feature = "follow"), allow(dead_code))]
    pub(crate) published_at: Option<Timestamp>,
}

impl Whole {
    pub(crate) fn read(json: &[u8]) -> serde_json::Result<Self> {
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(json)?;
        let position = take(&mut fields, "position");
        let published_at = take(&mut fields, "published_at");
        let created_at = take(&mut fields, "created_at");
        fields.retain(|name, _| NAMES.contains(&name.as_str()));
        Ok(Self {
            event: serde_json::from_slice(&serde_json::to_vec(&fields)?)?,
            created_at,
            position,
            published_at,
        })
    }
}

/// A field that can't be read counts as missing.
fn take<T: DeserializeOwned>(fields: &mut BTreeMap<String, Box<RawValue>>, name: &str) -> Option<T> {
    serde_json::from_str(fields.remove(name)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RetryOverrides;

    #[test]
    fn every_field_is_read_and_unknown_ones_are_ignored() {
        let retry = RetryOverrides::default()
            .max_attempts(3)
            .base_delay_ms(1)
            .max_delay_ms(2)
            .backoff_multiplier(1.5);
        let event = Event::to("t")
            .event_type("X")
            .aggregate("order", "o-1")
            .aggregate_version(2)
            .schema_version(3)
            .partition_key("k")
            .stream("S")
            .project_id("p")
            .user_id("u")
            .header("traceparent", "00-x")
            .available_at("2026-01-02T03:04:05Z".parse().unwrap())
            .retry(retry)
            .payload("[1.50]");
        let mut object = serde_json::to_value(&event).unwrap();
        let fields = object.as_object_mut().unwrap();
        assert_eq!(fields.len(), NAMES.len(), "{fields:?}");
        fields.insert("colour".into(), "blue".into());
        let text = object.to_string().replace("1.5]", "1.50]");
        let whole = Whole::read(text.as_bytes()).unwrap();
        assert_eq!(whole.event, event);
        assert_eq!((whole.position, whole.created_at), (None, None));
    }
}
