//! Which topics exist, as far as we asked. An event for a missing topic fails at once and alone, instead of waiting in
//! the client for a topic that never appears.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::{
    outcome::{check_topic, missing_topic, not_granted},
    producer::Producer,
};
use crate::sink::SinkError;

/// A topic that was refused is not asked for again for this long.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// If there are more topics than this, all are forgotten and asked for again.
const TOPICS_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Seen {
    topics: Mutex<HashMap<String, Answer>>,
    /// Topics that refused an event because of its size, and the smallest such size. Events of that size or more are
    /// sent alone, because a refusal in a batch costs the others a new producer.
    careful: Mutex<HashMap<String, usize>>,
    any_careful: AtomicBool,
}

#[derive(Clone)]
enum Answer {
    /// It exists, with this many partitions.
    There(u32),
    Refused(SinkError, Instant),
}

/// Why an event can't go to its topic.
pub(super) enum Hindrance {
    /// It is about the topic.
    Topic(SinkError),
    /// No broker could be asked.
    Away(SinkError),
}

impl Seen {
    fn topics(&self) -> MutexGuard<'_, HashMap<String, Answer>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an event may be sent to the topic.
    pub(super) async fn ask(
        &self,
        producer: &Arc<Producer>,
        topic: &str,
        deadline: Instant,
    ) -> Result<(), Hindrance> {
        check_topic(topic).map_err(Hindrance::Topic)?;
        match self.topics().get(topic) {
            Some(Answer::There(_)) => return Ok(()),
            Some(Answer::Refused(error, at)) if at.elapsed() < REFUSED_FOR => {
                return Err(Hindrance::Topic(error.clone()));
            }
            _ => {}
        }
        let timeout = deadline.saturating_duration_since(Instant::now());
        let asked = topic.to_owned();
        let (error, partitions) = producer
            .metadata(Some(topic.to_owned()), timeout, move |metadata| {
                let found = metadata.topics().iter().find(|found| found.name() == asked);
                match found {
                    Some(found) => (found.error().map(Code::from), found.partitions().len()),
                    None => (Some(Code::UnknownTopicOrPartition), 0),
                }
            })
            .await
            .map_err(Hindrance::Away)?;
        match error {
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownTopicId) => {
                Err(Hindrance::Topic(self.refuse(topic, missing_topic(topic))))
            }
            Some(Code::TopicAuthorizationFailed) => {
                Err(Hindrance::Topic(self.refuse(topic, not_granted(topic))))
            }
            // The topic exists. Other problems (no leader for now) show when an event is sent.
            _ => {
                self.remember(
                    topic,
                    Answer::There(u32::try_from(partitions).unwrap_or(u32::MAX)),
                );
                Ok(())
            }
        }
    }

    /// How many partitions the topic has, if known.
    pub(super) fn partitions(&self, topic: &str) -> Option<u32> {
        match self.topics().get(topic) {
            Some(Answer::There(count)) => Some(*count).filter(|count| *count > 0),
            _ => None,
        }
    }

    fn careful(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.careful.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_careful(&self) -> bool {
        self.any_careful.load(Ordering::Relaxed)
    }

    pub(super) fn careful_from(&self, topic: &str) -> Option<usize> {
        self.careful().get(topic).copied()
    }

    /// The topic refused an event of this size.
    pub(super) fn refused_size(&self, topic: &str, bytes: usize) {
        let mut careful = self.careful();
        if careful.len() >= TOPICS_MAX {
            careful.clear();
        }
        let least = careful.entry(topic.to_owned()).or_insert(bytes);
        *least = bytes.min(*least);
        self.any_careful.store(true, Ordering::Relaxed);
    }

    /// The topic accepted an event of this size: it compresses better, or somebody raised the limit.
    pub(super) fn took(&self, topic: &str, bytes: usize) {
        if let Some(least) = self.careful().get_mut(topic) {
            *least = (*least).max(bytes + 1);
        }
    }

    /// Remembers that a broker refused the whole topic.
    pub(super) fn refuse(&self, topic: &str, error: SinkError) -> SinkError {
        self.remember(topic, Answer::Refused(error.clone(), Instant::now()));
        error
    }

    fn remember(&self, topic: &str, answer: Answer) {
        let mut topics = self.topics();
        if topics.len() >= TOPICS_MAX {
            topics.clear();
        }
        topics.insert(topic.to_owned(), answer);
    }
}
