//! Shapes that are known by name: messages that hand-written workers send.

use super::{Place, Shape, Value};

/// A shape with a name.
pub struct Preset {
    pub name: &'static str,
    pub summary: &'static str,
    body: &'static [(&'static str, &'static str)],
    headers: &'static [(&'static str, &'static str)],
}

/// All of them, in the order of help and errors.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "payload",
        summary: "the payload, byte for byte, and no headers",
        body: &[],
        headers: &[],
    },
    Preset {
        name: "message-id",
        summary: "the payload with the event's id as `messageId`",
        body: &[("*", "payload"), ("messageId", "id")],
        headers: &[],
    },
    Preset {
        name: "event-id",
        summary: "the payload with the event's id as `event_id`",
        body: &[("*", "payload"), ("event_id", "id")],
        headers: &[],
    },
    Preset {
        name: "storage-outbox",
        summary: "the payload with `metadata`, which has the id and the sequence number, and three headers",
        body: &[
            ("*", "payload"),
            ("metadata", "row->event_metadata"),
            ("metadata.outbox_id", "id"),
            ("metadata.sequence_number", "aggregate_version"),
        ],
        headers: &[
            ("event_type", "event_type"),
            ("aggregate_id", "aggregate_id"),
            ("correlation_id", "row->event_metadata->correlation_id"),
        ],
    },
];

impl Preset {
    /// Its shape. `None`: one of its parts can't be read, which a test excludes.
    pub fn shape(&self) -> Option<Shape> {
        let body = self
            .body
            .iter()
            .map(|(place, value)| Some((Place::parse(place).ok()?, Value::parse(value).ok()?)));
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| Some(((*name).to_owned(), Value::parse(value).ok()?)));
        Some(Shape {
            body: body.collect::<Option<_>>()?,
            headers: headers.collect::<Option<_>>()?,
        })
    }
}

/// The preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_read() {
        for preset in PRESETS {
            assert!(preset.shape().is_some(), "{}", preset.name);
        }
    }
}
