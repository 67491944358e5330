//! A message as a broker delivers it, and the room it takes in memory until it is done.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The messages of a lane arrive in order. A lane is a JetStream stream, or a Kafka partition while it is
/// assigned.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) lane: u64,
    /// Stream sequence or offset: grows within the lane.
    pub(crate) position: u64,
    pub(crate) topic: String,
    pub(crate) partition: Option<i32>,
    /// The broker's own key, if there is one.
    pub(crate) key: Option<Bytes>,
    pub(crate) headers: Vec<(String, Bytes)>,
    pub(crate) body: Bytes,
    /// The reservation ends when the message is dropped.
    pub(crate) room: Option<Room>,
}

impl Message {
    /// The text of a header; names are case-insensitive.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, text) = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(text).ok()
    }

    /// Its approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, text)| name.len() + text.len())
            .sum();
        self.body.len() + headers + self.topic.len()
    }
}

/// The upper bounds for messages in memory: their number and their size.
#[derive(Debug, Clone)]
pub(crate) struct Rooms {
    events: Arc<Semaphore>,
    kibibytes: Arc<Semaphore>,
    events_max: usize,
    kibibytes_max: u32,
}

#[derive(Debug)]
pub(crate) struct Room {
    _event: OwnedSemaphorePermit,
    _kibibytes: OwnedSemaphorePermit,
}

impl Rooms {
    pub(crate) fn new(events_max: usize, bytes_max: usize) -> Self {
        let kibibytes_max = u32::try_from(bytes_max / 1024).unwrap_or(u32::MAX / 8).max(1);
        let events_max = events_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            events: Arc::new(Semaphore::new(events_max)),
            events_max,
            kibibytes: Arc::new(Semaphore::new(kibibytes_max as usize)),
            kibibytes_max,
        }
    }

    /// Waits until there is room. A message that is larger than the whole room waits for all of it.
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    pub(crate) async fn take(&self, bytes: usize) -> Option<Room> {
        let event = self.events.clone().acquire_owned().await.ok()?;
        let kibibytes = self.kibibytes.clone().acquire_many_owned(self.kibibytes(bytes));
        Some(Room {
            _event: event,
            _kibibytes: kibibytes.await.ok()?,
        })
    }

    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Room> {
        let event = self.events.clone().try_acquire_owned().ok()?;
        let kibibytes = self
            .kibibytes
            .clone()
            .try_acquire_many_owned(self.kibibytes(bytes));
        Some(Room {
            _event: event,
            _kibibytes: kibibytes.ok()?,
        })
    }

    /// How many more messages fit.
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    pub(crate) fn free(&self) -> usize {
        self.events.available_permits()
    }

    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    pub(crate) fn is_half_free(&self) -> bool {
        let half = |semaphore: &Semaphore, all: usize| semaphore.available_permits() >= all.div_ceil(2);
        half(&self.events, self.events_max) && half(&self.kibibytes, self.kibibytes_max as usize)
    }

    fn kibibytes(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(1024))
            .unwrap_or(u32::MAX)
            .clamp(1, self.kibibytes_max)
    }
}
