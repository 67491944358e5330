//! The polling thread.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rdkafka::{
    Message as _,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers},
};
use tokio::sync::mpsc;

use super::rebalance::Group;
use crate::consume::{
    ConsumeError,
    message::{Message, Rooms},
    source::Incoming,
};

/// How long a poll waits for a message. Notes about finished events wait just as long.
const POLL: Duration = Duration::from_millis(50);
/// The same while there is no room.
const POLL_FULL: Duration = Duration::from_millis(5);
/// After this time the consumer uses any free room, however little: failing keys may hold the rest.
const STALL_MAX: Duration = Duration::from_millis(200);
const COMMIT_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Member {
    consumer: BaseConsumer<Group>,
    rooms: Rooms,
    incoming: mpsc::UnboundedSender<Incoming>,
    /// Messages that were read while there was no room for the first of them. Later messages queue behind
    /// them.
    stalled: VecDeque<Message>,
    stalled_since: Instant,
    committed_at: Instant,
}

impl Member {
    pub(super) fn new(
        consumer: BaseConsumer<Group>,
        rooms: Rooms,
        incoming: mpsc::UnboundedSender<Incoming>,
    ) -> Self {
        Self {
            consumer,
            rooms,
            incoming,
            stalled: VecDeque::new(),
            stalled_since: Instant::now(),
            committed_at: Instant::now(),
        }
    }

    /// Runs until the engine ends, or until the brokers exclude this member for good.
    pub(super) fn run(mut self) {
        loop {
            let mut books = self.consumer.context().books();
            books.read_notes();
            let over = books.over;
            drop(books);
            if over {
                break;
            }
            self.commit(CommitMode::Async);
            self.unstall();
            let patience = if self.stalled.is_empty() { POLL } else { POLL_FULL };
            let message = match self.consumer.poll(patience) {
                None => continue,
                Some(Ok(message)) => taken(&message),
                Some(Err(KafkaError::MessageConsumptionFatal(error))) => {
                    tracing::error!(%error, "Kafka has excluded this group member for good; the consumer ends");
                    let ended = ConsumeError::Broker {
                        what: "Kafka has excluded this group member for good".to_owned(),
                        source: error.into(),
                    };
                    let _ = self.incoming.send(Incoming::Ended(ended));
                    break;
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "Kafka");
                    continue;
                }
            };
            self.arrived(message);
        }
        self.close();
    }

    fn arrived(&mut self, mut message: Message) {
        let partition = message.partition.unwrap_or_default();
        let opened = self
            .consumer
            .context()
            .books()
            .opened(&message.topic, partition, message.position);
        let Some(lane) = opened else { return };
        message.lane = lane;
        let room = match self.stalled.is_empty() && !self.consumer.context().books().waits(lane) {
            true => self.rooms.try_take(message.bytes()),
            false => None,
        };
        if room.is_some() {
            message.room = room;
            self.hand_on(message);
        } else {
            if self.stalled.is_empty() {
                self.stalled_since = Instant::now();
            }
            self.stalled.push_back(message);
            self.pause();
        }
    }

    fn hand_on(&self, message: Message) {
        // If the engine is gone, its notes are closed too and the loop ends.
        let _ = self.incoming.send(Incoming::Message(message));
    }

    fn pause(&self) {
        let paused = self
            .consumer
            .assignment()
            .and_then(|all| self.consumer.pause(&all));
        if let Err(error) = paused {
            tracing::debug!(%error, "could not pause partitions");
        }
    }

    /// Resumes when half of the room is free: each pause drops the messages that the client has fetched.
    fn unstall(&mut self) {
        let stalled = !self.stalled.is_empty();
        if !stalled || !(self.rooms.is_half_free() || self.stalled_since.elapsed() >= STALL_MAX) {
            return;
        }
        while let Some(mut message) = self.stalled.pop_front() {
            if !self.consumer.context().books().has(message.lane) {
                continue;
            }
            if !self.consumer.context().books().waits(message.lane) {
                message.room = self.rooms.try_take(message.bytes());
            }
            if message.room.is_none() {
                self.stalled.push_front(message);
                return;
            }
            self.hand_on(message);
        }
        self.resume();
    }

    fn resume(&self) {
        let resumed = self
            .consumer
            .assignment()
            .and_then(|all| self.consumer.resume(&all));
        if let Err(error) = resumed {
            tracing::warn!(%error, "could not resume partitions");
        }
    }

    fn commit(&mut self, mode: CommitMode) {
        if matches!(mode, CommitMode::Async) && self.committed_at.elapsed() < COMMIT_EVERY {
            return;
        }
        self.committed_at = Instant::now();
        let done = self.consumer.context().books().uncommitted(None);
        if done.count() > 0
            && let Err(error) = self.consumer.commit(&done, mode)
        {
            tracing::debug!(%error, "could not commit offsets");
        }
    }

    /// Commits the offsets, then leaves the group.
    fn close(mut self) {
        self.commit(CommitMode::Sync);
        let closed = self.consumer.context().books().closed.take();
        let Self {
            consumer, incoming, ..
        } = self;
        // Leaving the group revokes the partitions, and the engine no longer answers.
        drop(incoming);
        drop(consumer);
        drop(closed);
    }
}

fn taken(message: &BorrowedMessage<'_>) -> Message {
    Message {
        lane: 0,
        position: u64::try_from(message.offset()).unwrap_or_default(),
        topic: message.topic().to_owned(),
        partition: Some(message.partition()),
        key: message.key().map(Bytes::copy_from_slice),
        headers: headers(message),
        body: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
        room: None,
    }
}

/// The client panics on a header name that is not UTF-8, and this thread must survive: skip such a header.
fn headers(message: &BorrowedMessage<'_>) -> Vec<(String, Bytes)> {
    let Some(headers) = message.headers() else {
        return Vec::new();
    };
    let header = |at| {
        let header = headers.try_get(at)?;
        let text = Bytes::copy_from_slice(header.value.unwrap_or_default());
        Some((header.key.to_owned(), text))
    };
    (0..headers.count())
        .filter_map(|at| catch_unwind(AssertUnwindSafe(|| header(at))).ok().flatten())
        .collect()
}
