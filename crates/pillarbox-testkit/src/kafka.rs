//! Reads a whole Kafka topic with the plain client.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    message::{BorrowedMessage, Headers},
};

/// The timeout.
const PATIENCE: Duration = Duration::from_secs(30);

/// A message of the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub partition: i32,
    pub key: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub payload: Vec<u8>,
}

/// Everything committed in the topic, in order within each partition.
///
/// # Panics
/// If the topic can't be read to its end.
pub async fn messages(bootstrap: &str, topic: &str) -> Vec<Received> {
    let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
    let read = tokio::task::spawn_blocking(move || read(&bootstrap, &topic)).await;
    match read {
        Ok(Ok(messages)) => messages,
        Ok(Err(error)) => panic!("the topic can't be read: {error:#}"),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Reads a topic, continuing where the last read ended.
pub struct Reader {
    bootstrap: String,
    topic: String,
    /// The next offset of each partition.
    next: BTreeMap<i32, i64>,
}

impl Reader {
    pub fn new(bootstrap: &str, topic: &str) -> Self {
        Self {
            bootstrap: bootstrap.to_owned(),
            topic: topic.to_owned(),
            next: BTreeMap::new(),
        }
    }

    /// The topic was deleted and recreated: its offsets start again.
    pub fn start_over(&mut self) {
        self.next.clear();
    }

    /// What arrived since the last call, up to the present end of the topic. Blocks its thread. An error
    /// means that the broker is away or has no such topic; the next call then reads what was not returned.
    pub fn read_on(&mut self, patience: Duration) -> Result<Vec<Received>> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", "pillarbox-testkit")
            .set("enable.auto.commit", "false")
            .set("log_level", "2")
            .create()?;
        let metadata = consumer.fetch_metadata(Some(&self.topic), patience)?;
        let known: Vec<_> = metadata
            .topics()
            .iter()
            .flat_map(|topic| topic.partitions())
            .collect();
        ensure!(!known.is_empty(), "there is no topic {}", self.topic);
        let mut unread = BTreeMap::new();
        let mut partitions = TopicPartitionList::new();
        for partition in known {
            let (low, high) = consumer.fetch_watermarks(&self.topic, partition.id(), patience)?;
            let next = *self.next.get(&partition.id()).unwrap_or(&low);
            if next < high {
                partitions.add_partition_offset(&self.topic, partition.id(), Offset::Offset(next))?;
                unread.insert(partition.id(), high);
            }
        }
        consumer.assign(&partitions)?;
        let mut next = self.next.clone();
        let mut messages = Vec::new();
        while !unread.is_empty() {
            let message = consumer.poll(patience).context("the topic has no end")??;
            next.insert(message.partition(), message.offset() + 1);
            if unread
                .get(&message.partition())
                .is_some_and(|end| message.offset() + 1 >= *end)
            {
                unread.remove(&message.partition());
            }
            messages.push(received(&message));
        }
        self.next = next;
        Ok(messages)
    }
}

fn received(message: &BorrowedMessage<'_>) -> Received {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Received {
        partition: message.partition(),
        key: message.key().map(text),
        headers: headers
            .map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default()))
            .collect(),
        payload: message.payload().unwrap_or_default().to_vec(),
    }
}

fn read(bootstrap: &str, topic: &str) -> Result<Vec<Received>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "pillarbox-testkit")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .create()?;
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let mut partitions = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        partitions.add_partition_offset(topic, partition.id(), Offset::Beginning)?;
    }
    let mut unread = partitions.count();
    consumer.assign(&partitions)?;
    let mut messages = Vec::new();
    while unread > 0 {
        let message = match consumer.poll(PATIENCE).context("the topic has no end")? {
            Ok(message) => message,
            Err(rdkafka::error::KafkaError::PartitionEOF(_)) => {
                unread -= 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        messages.push(received(&message));
    }
    Ok(messages)
}
