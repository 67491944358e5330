//! What a consumer without any knowledge of Pillarbox finds in the topic.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::Result;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{Consumer, StreamConsumer},
    message::Headers,
};

use crate::TOPIC;

/// How many of the events are shown.
const SHOWN: usize = 12;
/// How long to wait after the last expected event, for copies or events that should not exist.
const QUIET: Duration = Duration::from_millis(1_500);

#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: String,
    pub(super) id: String,
    pub(super) event_type: String,
    pub(super) version: i64,
}

/// Reads the topic from its beginning, until all of these events were seen and no more arrive, or until the
/// timeout.
pub(super) async fn read(bootstrap: &str, awaited: &BTreeSet<String>, end: Instant) -> Result<Vec<Found>> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "user-cards-story")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()?;
    let topic = consumer.fetch_metadata(Some(TOPIC), Duration::from_secs(10))?;
    let mut everything = TopicPartitionList::new();
    for partition in topic.topics().iter().flat_map(|topic| topic.partitions()) {
        everything.add_partition_offset(TOPIC, partition.id(), Offset::Beginning)?;
    }
    consumer.assign(&everything)?;
    let mut found: Vec<Found> = Vec::new();
    let mut missing = awaited.clone();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let patience = if missing.is_empty() { QUIET.min(left) } else { left };
        let Ok(message) = tokio::time::timeout(patience, consumer.recv()).await else {
            return Ok(found);
        };
        let message = message?;
        let header = |name: &str| {
            let headers = message.headers()?;
            let header = headers
                .iter()
                .find(|header| header.key.eq_ignore_ascii_case(name))?;
            String::from_utf8(header.value?.to_vec()).ok()
        };
        let id = header("Pillarbox-Id").unwrap_or_default();
        missing.remove(&id);
        found.push(Found {
            partition: message.partition(),
            offset: message.offset(),
            key: String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned(),
            id,
            event_type: header("Pillarbox-Event-Type").unwrap_or_default(),
            version: header("Pillarbox-Aggregate-Version")
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
        });
    }
}

pub(super) fn show(events: &[Found]) {
    println!(
        "  {:<10} {:<7} {:<26} {:<13} VERSION",
        "PARTITION", "OFFSET", "KEY", "TYPE"
    );
    for event in events.iter().take(SHOWN) {
        let Found {
            partition,
            offset,
            key,
            event_type,
            version,
            ..
        } = event;
        println!("  {partition:<10} {offset:<7} {key:<26} {event_type:<13} {version}");
    }
    if events.len() > SHOWN {
        println!("  … and {} more", events.len() - SHOWN);
    }
}
