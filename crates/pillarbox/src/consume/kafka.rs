//! Kafka: a member of a consumer group. It commits an offset when everything below it is done.
//!
//! [`member`] polls in its own thread, because librdkafka reports a rebalance from within a poll, and the
//! poll has to wait for it. When a partition is revoked, nothing new of it starts, running handlers finish,
//! and its offset is committed before another member gets it. [`floor`] knows how far a partition is done
//! without a gap. When one key fails, other keys of its partition continue above it, and only their offsets
//! wait. Partitions are paused while there is no room in memory.
//!
//! Members share the partitions. A member that does not know yet that it lost a partition does no harm: see
//! the [engine](super::engine).

mod floor;
mod letters;
mod member;
mod rebalance;

use std::{sync::Arc, time::Duration};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};
use tokio::sync::{mpsc, watch};

use self::{letters::KafkaLetters, member::Member, rebalance::Group};
use super::{ConsumeError, Options, message::Rooms, source::Source};

/// The timeout for listing the topics.
const METADATA_PATIENCE: Duration = Duration::from_secs(15);
/// The longest time that a rebalance waits for running handlers.
const REVOKE_PATIENCE_MAX: Duration = Duration::from_secs(20);

/// Kafka topics to consume.
#[derive(Debug, Clone)]
pub struct Kafka {
    config: ClientConfig,
    topics: Vec<String>,
}

impl Kafka {
    /// `config` says where the brokers are (`bootstrap.servers`) and how to connect to them; the consumer's
    /// own settings are set here. A new group starts at the beginning unless `auto.offset.reset` says
    /// otherwise. With a `group.instance.id`, a member that restarts soon gets its partitions back at once.
    pub fn new<T: Into<String>>(config: ClientConfig, topics: impl IntoIterator<Item = T>) -> Self {
        Self {
            config,
            topics: topics.into_iter().map(Into::into).collect(),
        }
    }

    pub(super) async fn open(
        self,
        group: &str,
        options: &Options,
        rooms: Rooms,
    ) -> Result<Source, ConsumeError> {
        let (incoming_sender, incoming) = mpsc::unbounded_channel();
        let (notes, notes_receiver) = mpsc::unbounded_channel();
        let (waiting_sender, waiting) = watch::channel(None);
        let letters = KafkaLetters::new(&self.config).map_err(|error| self.refused(error))?;
        let patience = options.handler_timeout.min(REVOKE_PATIENCE_MAX);
        let context = Group::new(incoming_sender.clone(), notes_receiver, waiting_sender, patience);
        let consumer: BaseConsumer<Group> = self
            .consumer(group)
            .create_with_context(context)
            .map_err(|error| self.refused(error))?;
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| self.refused(error))?;
        let asked = self.clone();
        let dead_letters = options.dead_letters.clone();
        let consumer = tokio::task::spawn_blocking(move || {
            for topic in &asked.topics {
                for needed in [topic, &dead_letters.topic(topic)] {
                    if !exists(&consumer, needed).map_err(|error| asked.refused(error))? {
                        return Err(asked.refused(missing(topic, needed)));
                    }
                }
            }
            Ok(consumer)
        });
        let consumer = consumer.await.map_err(|error| self.refused(error))??;
        let member = Member::new(consumer, rooms, incoming_sender);
        std::thread::Builder::new()
            .name(format!("consume-{group}"))
            .spawn(move || member.run())
            .map_err(|error| self.refused(error))?;
        Ok(Source {
            incoming,
            notes,
            letters: Arc::new(letters),
            waiting,
        })
    }

    fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = self.config.clone();
        let defaults = [
            ("auto.offset.reset", "earliest"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("session.timeout.ms", "10000"),
            // What the client prefetches into memory.
            ("queued.max.messages.kbytes", "16384"),
            ("statistics.interval.ms", "5000"),
        ];
        for (name, value) in defaults {
            if config.get(name).is_none() {
                config.set(name, value);
            }
        }
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("isolation.level", "read_committed");
        config
    }

    fn refused(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConsumeError {
        ConsumeError::Broker {
            what: format!("Kafka's topics {} can't be consumed", self.topics.join(", ")),
            source: why.into(),
        }
    }
}

fn exists(consumer: &BaseConsumer<Group>, topic: &str) -> Result<bool, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), METADATA_PATIENCE)?;
    let known = metadata.topics().iter().find(|known| known.name() == topic);
    Ok(known.is_some_and(|known| !known.partitions().is_empty()))
}

fn missing(topic: &str, needed: &str) -> String {
    match needed == topic {
        true => format!("there is no topic {topic}, or this user may not see it"),
        false => format!(
            "there is no topic {needed} for the dead letters, or this user may not see it. Create it, or name another with \
             `dead_letters`"
        ),
    }
}
