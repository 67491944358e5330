//! Reads a whole Kafka topic with the bare client.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    message::Headers,
};

/// Whatever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A message as the topic has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub partition: i32,
    pub key: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub payload: Vec<u8>,
}

/// Everything committed in the topic: of each partition in its order.
///
/// # Panics
/// When the topic can't be read to its end.
pub async fn messages(bootstrap: &str, topic: &str) -> Vec<Received> {
    let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
    let read = tokio::task::spawn_blocking(move || read(&bootstrap, &topic)).await;
    match read {
        Ok(Ok(messages)) => messages,
        Ok(Err(error)) => panic!("the topic can't be read: {error:#}"),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
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
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        messages.push(Received {
            partition: message.partition(),
            key: message.key().map(text),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default()))
                .collect(),
            payload: message.payload().unwrap_or_default().to_vec(),
        });
    }
    Ok(messages)
}
