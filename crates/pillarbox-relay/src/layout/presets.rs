//! Layouts that are known by name. Each is a table that teams have written many times.

use std::collections::{BTreeMap, BTreeSet};

use super::{Field, Field::*, Layout, Record, Source, States, Words, source::Part};

/// A layout with a name.
pub struct Preset {
    pub name: &'static str,
    /// Which tables it fits: one sentence.
    pub summary: &'static str,
    /// The usual name of the table.
    pub table: &'static str,
    make: fn() -> Layout,
}

/// All of them, in the order of help and errors.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "processed-flag",
        summary: "a boolean `processed`, with a stream and a topic for each row; the key is the stream",
        table: "outbox_events",
        make: processed_flag,
    },
    Preset {
        name: "status-words",
        summary: "an aggregate, an event type, and a status PENDING, PUBLISHED or FAILED",
        table: "outbox_events",
        make: status_words,
    },
    Preset {
        name: "project-events",
        summary: "events of projects and users, with a status pending, published or failed",
        table: "event_outbox",
        make: project_events,
    },
    Preset {
        name: "storage-outbox",
        summary: "a delivery status, a sequence number per aggregate, and retry settings for each row",
        table: "storage_outbox",
        make: storage_outbox,
    },
    Preset {
        name: "debezium",
        summary: "the table of Debezium's outbox event router; rows have no status",
        table: "outbox",
        make: debezium,
    },
];

impl Preset {
    /// The layout of this table.
    pub fn layout(&self, table: &str) -> Layout {
        Layout {
            table: table.to_owned(),
            ..(self.make)()
        }
    }
}

/// The preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

fn layout<const F: usize, const R: usize>(
    fields: [(Field, Source); F],
    states: States,
    records: [(Record, &str); R],
) -> Layout {
    Layout {
        table: String::new(),
        fields: fields.into(),
        states,
        records: records.map(|(record, column)| (record, column.to_owned())).into(),
        carried: BTreeSet::new(),
        delete_published: false,
    }
}

fn column(name: &str) -> Source {
    Source::column(name)
}

/// One column that has a word for each state.
fn words(column: &str, word: &str) -> Words {
    BTreeMap::from([(column.to_owned(), Some(word.to_owned()))])
}

/// `<aggregate type>.<event type>`
fn type_and_event(aggregate_type: &str, event_type: &str) -> Source {
    Source::Text(vec![
        Part::Column(aggregate_type.to_owned()),
        Part::Fixed(".".to_owned()),
        Part::Column(event_type.to_owned()),
    ])
}

fn processed_flag() -> Layout {
    let flags = |processed: &str, error: Option<&str>| {
        Words::from([
            ("processed".to_owned(), Some(processed.to_owned())),
            ("error".to_owned(), error.map(str::to_owned)),
        ])
    };
    layout(
        [
            (Id, column("id")),
            (Stream, column("stream")),
            (Topic, column("topic")),
            (EventType, column("topic")),
            (AggregateType, column("stream")),
            (AggregateId, column("stream")),
            (Payload, column("payload")),
            (CreatedAt, column("created_at")),
        ],
        States {
            // A row with an error is one that the old worker has given up.
            pending: flags("false", None),
            published: words("processed", "true"),
            dead: flags("false", Some("unrecoverable")),
            ..States::default()
        },
        [(Record::PublishedAt, "processed_at")],
    )
}

fn status_words() -> Layout {
    layout(
        [
            (Id, column("id")),
            (Topic, type_and_event("aggregate_type", "event_type")),
            (EventType, column("event_type")),
            (AggregateType, column("aggregate_type")),
            (AggregateId, column("aggregate_id")),
            (Payload, column("payload")),
            (CreatedAt, column("occurred_at")),
            (AvailableAt, column("next_attempt_at")),
        ],
        States {
            pending: words("status", "PENDING"),
            published: words("status", "PUBLISHED"),
            dead: words("status", "FAILED"),
            ..States::default()
        },
        [
            (Record::Attempts, "retry_count"),
            (Record::NextAttemptAt, "next_attempt_at"),
            (Record::LastError, "last_error"),
            (Record::PublishedAt, "processed_at"),
        ],
    )
}

fn project_events() -> Layout {
    layout(
        [
            (Id, column("id")),
            (Topic, type_and_event("aggregate_type", "event_type")),
            (EventType, column("event_type")),
            (AggregateType, column("aggregate_type")),
            (AggregateId, column("aggregate_id")),
            (ProjectId, column("project_id")),
            (UserId, column("user_id")),
            (Payload, column("payload")),
            (CreatedAt, column("created_at")),
            (AvailableAt, column("next_retry_at")),
        ],
        States {
            pending: words("status", "pending"),
            published: words("status", "published"),
            dead: words("status", "failed"),
            ..States::default()
        },
        [
            (Record::Attempts, "retry_count"),
            (Record::NextAttemptAt, "next_retry_at"),
            (Record::LastError, "last_error"),
            (Record::PublishedAt, "published_at"),
        ],
    )
}

fn storage_outbox() -> Layout {
    let mut layout = layout(
        [
            (Id, column("outbox_id")),
            (Topic, column("target_topic")),
            (EventType, column("event_type")),
            (
                SchemaVersion,
                Source::Path {
                    column: "event_metadata".to_owned(),
                    path: vec!["event_version".to_owned()],
                },
            ),
            (AggregateType, column("aggregate_type")),
            (AggregateId, column("aggregate_id")),
            (AggregateVersion, column("sequence_number")),
            (PartitionKey, column("partition_key")),
            (Payload, column("event_payload")),
            (CreatedAt, column("created_at")),
            (AvailableAt, column("next_retry_at")),
            (MaxAttempts, column("max_attempts")),
            (BaseDelayMs, column("base_delay_ms")),
            (MaxDelayMs, column("max_delay_ms")),
            (BackoffMultiplier, column("backoff_multiplier")),
        ],
        States {
            pending: words("delivery_status", "pending"),
            failed: words("delivery_status", "failed"),
            processing: words("delivery_status", "processing"),
            published: words("delivery_status", "delivered"),
            dead: words("delivery_status", "dlq"),
        },
        [
            (Record::Attempts, "delivery_attempts"),
            (Record::FirstAttemptAt, "first_attempt_at"),
            (Record::LastAttemptAt, "last_attempt_at"),
            (Record::NextAttemptAt, "next_retry_at"),
            (Record::PublishedAt, "delivered_at"),
        ],
    );
    layout.carried = BTreeSet::from(["event_metadata".to_owned()]);
    layout
}

fn debezium() -> Layout {
    layout(
        [
            (Id, column("id")),
            (
                Topic,
                Source::Text(vec![
                    Part::Fixed("outbox.event.".to_owned()),
                    Part::Column("aggregatetype".to_owned()),
                ]),
            ),
            (EventType, column("type")),
            (AggregateType, column("aggregatetype")),
            (AggregateId, column("aggregateid")),
            (Payload, column("payload")),
        ],
        States::default(),
        [],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_complete() {
        for preset in PRESETS {
            let layout = preset.layout(preset.table);
            layout
                .check()
                .unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            layout.own_tables().unwrap();
        }
    }
}
