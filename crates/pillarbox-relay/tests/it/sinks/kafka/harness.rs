//! Shared by the tests of the Kafka sink: opening it, and reading topics with the bare client.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use pillarbox::Event;
use pillarbox_relay::{
    connect::SinkOptions,
    sink::{Outcome, Outgoing, SinkError, kafka::KafkaSink},
};
use pillarbox_testkit::{
    contract::sink::{Arrived, outgoing},
    servers::Kafka,
};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::Headers,
};
use uuid::Uuid;

pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn options(url: &str) -> SinkOptions {
    SinkOptions {
        publish_timeout: TIMEOUT,
        ..SinkOptions::new(url)
    }
}

pub(super) fn open(url: &str) -> KafkaSink {
    KafkaSink::open(&options(url)).unwrap()
}

/// Creates a topic for one test on the shared broker.
pub(super) async fn new_topic(server: &Kafka, partitions: i32) -> String {
    new_topic_with(server, partitions, &[]).await
}

pub(super) async fn new_topic_with(server: &Kafka, partitions: i32, settings: &[(&str, &str)]) -> String {
    let name = format!("t-{}", Uuid::new_v4());
    server.create_topic_with(&name, partitions, settings).await;
    name
}

pub(super) fn to(topic: &str, event: Event) -> Outgoing {
    outgoing(event.topic(topic))
}

pub(super) fn failure(outcome: &Outcome) -> &SinkError {
    match outcome {
        Outcome::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Everything in a topic, partition by partition. With `committed`, only committed messages.
pub(super) async fn read(bootstrap: &str, topic: &str, committed: bool) -> Vec<Arrived> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    read_with(config, topic, committed).await
}

pub(super) async fn read_with(mut config: ClientConfig, topic: &str, committed: bool) -> Vec<Arrived> {
    config
        .set("group.id", "tests")
        .set("enable.partition.eof", "true")
        .set("enable.auto.commit", "false")
        .set(
            "isolation.level",
            if committed {
                "read_committed"
            } else {
                "read_uncommitted"
            },
        )
        .set("log_level", "2");
    let topic = topic.to_owned();
    tokio::task::spawn_blocking(move || read_all(&config.create().unwrap(), &topic))
        .await
        .unwrap()
}

fn read_all(consumer: &BaseConsumer, topic: &str) -> Vec<Arrived> {
    let metadata = consumer
        .fetch_metadata(Some(topic), Duration::from_secs(10))
        .unwrap();
    let partitions = metadata.topics()[0].partitions().len();
    let mut assigned = TopicPartitionList::new();
    for partition in 0..partitions {
        assigned
            .add_partition_offset(topic, i32::try_from(partition).unwrap(), Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&assigned).unwrap();
    let mut by_partition: BTreeMap<i32, Vec<Arrived>> = BTreeMap::new();
    let mut ended = HashSet::new();
    while ended.len() < partitions {
        match consumer.poll(Duration::from_secs(20)) {
            Some(Ok(message)) => {
                let arrived = by_partition.entry(message.partition()).or_default();
                arrived.push(arrived_of(&message));
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            // Keep reading after an error: the broker may have just restarted.
            Some(Err(_)) => {}
            None => panic!("the reader ended before the end of {topic}"),
        }
    }
    by_partition.into_values().flatten().collect()
}

fn arrived_of(message: &impl Message) -> Arrived {
    let headers: BTreeMap<String, String> = message
        .headers()
        .map(|headers| {
            headers
                .iter()
                .map(|header| {
                    let value = String::from_utf8_lossy(header.value.unwrap_or_default());
                    (header.key.to_owned(), value.into_owned())
                })
                .collect()
        })
        .unwrap_or_default();
    let text = |name: &str| headers.get(name).cloned().unwrap_or_default();
    Arrived {
        id: text("Pillarbox-Id").parse().unwrap(),
        key: String::from_utf8(message.key().unwrap_or_default().to_vec()).unwrap(),
        event_type: text("Pillarbox-Event-Type"),
        aggregate: (text("Pillarbox-Aggregate-Type"), text("Pillarbox-Aggregate-Id")),
        aggregate_version: text("Pillarbox-Aggregate-Version").parse().ok(),
        headers,
        payload: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
    }
}

/// Checks that all `events` arrived, and that the numbers in the payloads rise within each key. Copies are
/// ignored.
pub(super) fn in_order(arrived: &[Arrived], events: usize) {
    let mut seen = HashSet::new();
    let mut last: HashMap<&str, i64> = HashMap::new();
    for event in arrived.iter().filter(|event| seen.insert(event.id.clone())) {
        let number: i64 = std::str::from_utf8(&event.payload).unwrap().parse().unwrap();
        let before = last.insert(&event.key, number);
        assert!(
            before.is_none_or(|before| before < number),
            "{number} of {} came after {before:?}",
            event.key
        );
    }
    assert_eq!(seen.len(), events, "events arrived");
}
