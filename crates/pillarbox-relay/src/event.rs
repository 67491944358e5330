//! An event as the store has it: what the producer wrote, and where it lies.

use jiff::Timestamp;
use pillarbox::Event;

/// An event's place in its store: the order of writing, and of its key.
pub type Seq = i64;

/// One of the 256 parts that keys hash to; what relays lease.
pub type Lane = u8;

#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    pub seq: Seq,
    pub lane: Lane,
    /// Failed attempts counted against it so far. An outage counts none, and neither does the delivery.
    pub attempts: u32,
    pub created_at: Timestamp,
    pub event: Event,
}

impl StoredEvent {
    /// About how much memory the event takes, for the bounds on windows.
    pub fn bytes(&self) -> usize {
        const FIELDS: usize = 512;
        /// Two texts of their own, and their place in the map.
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

/// A row that can't be read as an event: it becomes a dead letter with this reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub seq: Seq,
    pub lane: Lane,
    pub problem: String,
    /// As far as these can be read: its route may hold back its key.
    pub topic: Option<String>,
    pub key: Option<String>,
}
