//! A dead letter: the original message, and why it could not be processed.

use bytes::Bytes;

use super::message::Message;
use crate::wire;

/// Rejected by the handler.
pub(crate) const REJECTED: &str = "permanent_failure";
pub(crate) const EXHAUSTED: &str = "max_retries_exceeded";
pub(crate) const NO_EVENT: &str = "poison_message";
/// It killed the process.
pub(crate) const DIED: &str = "process_died";

/// The topics of dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetters {
    /// Beside the topic: `<topic>.dead`.
    #[default]
    Beside,
    /// All dead letters go to this topic.
    To(String),
}

impl DeadLetters {
    pub(crate) fn topic(&self, of: &str) -> String {
        match self {
            Self::Beside => format!("{of}.dead"),
            Self::To(topic) => topic.clone(),
        }
    }
}

/// A dead letter that is about to be published.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) topic: String,
    /// The same at every attempt to publish it.
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    pub(crate) id: String,
    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    pub(crate) key: Option<Bytes>,
    pub(crate) headers: Vec<(String, Bytes)>,
    pub(crate) body: Bytes,
}

/// Why a message is dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cause<'a> {
    pub(crate) group: &'a str,
    pub(crate) reason: &'static str,
    pub(crate) error: &'a str,
    pub(crate) attempts: u32,
}

impl Letter {
    /// `event_id`: the event's id, if the message is an event.
    pub(crate) fn new(message: &Message, topic: String, event_id: Option<&str>, cause: Cause<'_>) -> Self {
        // Drop `Nats-` headers, which the server would act on, and those of an earlier dead letter, which are
        // outdated.
        let mut headers: Vec<(String, Bytes)> = message
            .headers
            .iter()
            .filter(|(name, _)| {
                !wire::starts_with(name, wire::NATS_PREFIX) && !wire::starts_with(name, wire::DEAD_PREFIX)
            })
            .cloned()
            .collect();
        let mut add = |name: &str, text: String| headers.push((name.to_owned(), Bytes::from(text)));
        // The id may have been only in the broker's own header.
        if message.header(wire::ID).is_none()
            && let Some(id) = event_id
        {
            add(wire::ID, id.to_owned());
        }
        add(wire::DEAD_REASON, cause.reason.to_owned());
        add(wire::DEAD_ERROR, cause.error.to_owned());
        add(wire::DEAD_ATTEMPTS, cause.attempts.to_string());
        add(wire::DEAD_GROUP, cause.group.to_owned());
        add(wire::DEAD_TOPIC, message.topic.clone());
        let id = match event_id {
            Some(id) => format!("dead-{}-{id}", cause.group),
            None => format!("dead-{}-{}-{}", cause.group, message.topic, message.position),
        };
        Self {
            topic,
            id,
            key: message.key.clone(),
            headers,
            body: message.body.clone(),
        }
    }
}

/// Whether this is a dead letter of the group itself: the group may also consume its dead letter topic.
pub(crate) fn is_own(message: &Message, group: &str) -> bool {
    message.header(wire::DEAD_GROUP) == Some(group)
}
