//! An event as the store has it: what the producer wrote, and its place in the store.

use jiff::Timestamp;
use pillarbox::Event;

/// An event's place in its store. It is the order of writing, and the order within a key.
pub type Seq = i64;

/// One of the 256 parts to which keys hash. Relays lease lanes.
pub type Lane = u8;

#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    pub seq: Seq,
    pub lane: Lane,
    /// Failed attempts that were counted so far. An outage is not counted, and neither is the delivery.
    pub attempts: u32,
    pub created_at: Timestamp,
    pub event: Event,
}

impl StoredEvent {
    /// The approximate memory of the event, for the limits of the window.
    pub fn bytes(&self) -> usize {
        const FIELDS: usize = 512;
        /// Two separate strings, and their place in the map.
        const HEADER: usize = 64;
        let event = &self.event;
        let headers = event.headers.iter();
        let optional = [
            &event.stream,
            &event.partition_key,
            &event.project_id,
            &event.user_id,
        ];
        FIELDS
            + event.payload.len()
            + headers
                .map(|(name, value)| name.len() + value.len() + HEADER)
                .sum::<usize>()
            + [
                &event.topic,
                &event.event_type,
                &event.aggregate_type,
                &event.aggregate_id,
            ]
            .into_iter()
            .chain(optional.into_iter().flatten())
            .map(String::len)
            .sum::<usize>()
    }
}

/// A row that can't be read as an event. It becomes a dead letter with this problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub seq: Seq,
    pub lane: Lane,
    pub problem: String,
    /// `None` if they can't be read. The route of the topic may hold the key.
    pub topic: Option<String>,
    pub key: Option<String>,
}
