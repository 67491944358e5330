//! A member's partitions, and what happens when they are assigned and revoked.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError, mpsc as threads},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientContext, Offset, Statistics, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance},
    error::{KafkaError, KafkaResult},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::floor::Floor;
use crate::consume::source::{Incoming, Note};

pub(super) struct Group {
    books: Mutex<Books>,
    incoming: mpsc::UnboundedSender<Incoming>,
    waiting: watch::Sender<Option<u64>>,
    /// How long a rebalance waits for a revoked partition.
    patience: Duration,
}

/// A partition while it is assigned.
struct Lane {
    topic: String,
    partition: i32,
    floor: Floor,
    committed: Option<u64>,
    /// The end offset at the broker, from the latest statistics.
    broker_end: Option<u64>,
    /// The lane of the same partition before the topic was recreated. It has to be done first.
    after: Option<u64>,
    /// The topic was recreated: these offsets belong to the old partition.
    replaced: bool,
}

impl Lane {
    fn new(topic: &str, partition: i32) -> Self {
        Self {
            topic: topic.to_owned(),
            partition,
            floor: Floor::default(),
            committed: None,
            broker_end: None,
            after: None,
            replaced: false,
        }
    }
}

pub(super) struct Books {
    lanes: HashMap<u64, Lane>,
    assigned: HashMap<(String, i32), u64>,
    lane_last: u64,
    notes: mpsc::UnboundedReceiver<Note>,
    /// The member is to end.
    pub(super) over: bool,
    pub(super) closed: Option<oneshot::Sender<()>>,
}

impl Books {
    /// Opens the lane of a message. Offsets that go back mean that the topic was recreated, or lost messages:
    /// they get a new lane.
    pub(super) fn opened(&mut self, topic: &str, partition: i32, offset: u64) -> Option<u64> {
        let mut lane = *self.assigned.get(&(topic.to_owned(), partition))?;
        let end = self.lanes.get(&lane)?.floor.end();
        if let Some(end) = end.filter(|end| offset < *end) {
            tracing::error!(
                topic,
                partition,
                read_up_to = end - 1,
                from = offset,
                "the topic was recreated, or lost messages; reading continues there, and the inbox skips known events"
            );
            lane = self.replace(topic, partition, lane);
        }
        self.lanes.get_mut(&lane)?.floor.opened(offset);
        Some(lane)
    }

    fn replace(&mut self, topic: &str, partition: i32, old: u64) -> u64 {
        if let Some(old) = self.lanes.get_mut(&old) {
            old.replaced = true;
        }
        self.lane_last += 1;
        let new = Lane {
            after: Some(old),
            ..Lane::new(topic, partition)
        };
        self.lanes.insert(self.lane_last, new);
        self.assigned
            .insert((topic.to_owned(), partition), self.lane_last);
        self.lane_last
    }

    /// Whether the messages read before the topic was recreated must be done first, so that keys keep their
    /// order.
    pub(super) fn waits(&mut self, lane: u64) -> bool {
        let Some(after) = self.lanes.get(&lane).and_then(|lane| lane.after) else {
            return false;
        };
        if self.waits(after) || self.lanes.get(&after).is_some_and(|old| !old.floor.is_reached()) {
            return true;
        }
        self.lanes.remove(&after);
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.after = None;
        }
        false
    }

    /// Whether this lane is still assigned to us.
    pub(super) fn has(&self, lane: u64) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// Records what the engine has done.
    pub(super) fn read_notes(&mut self) {
        loop {
            match self.notes.try_recv() {
                Ok(Note::Done { lane, position }) => {
                    if let Some(lane) = self.lanes.get_mut(&lane) {
                        lane.floor.done(position);
                    }
                }
                Ok(Note::Close { closed }) => {
                    self.closed = Some(closed);
                    self.over = true;
                }
                Ok(_) => {}
                Err(mpsc::error::TryRecvError::Empty) => return,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    self.over = true;
                    return;
                }
            }
        }
    }

    /// The floors that moved since the last call.
    pub(super) fn uncommitted(&mut self, only: Option<&[u64]>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for (id, lane) in &mut self.lanes {
            let floor = lane.floor.get();
            if lane.replaced || floor == lane.committed || only.is_some_and(|only| !only.contains(id)) {
                continue;
            }
            let Some(offset) = floor.and_then(|floor| i64::try_from(floor).ok()) else {
                continue;
            };
            if list
                .add_partition_offset(&lane.topic, lane.partition, Offset::Offset(offset))
                .is_ok()
            {
                lane.committed = floor;
            }
        }
        list
    }

    fn assign(&mut self, partitions: &TopicPartitionList) {
        for partition in partitions.elements() {
            self.lane_last += 1;
            let lane = Lane::new(partition.topic(), partition.partition());
            self.assigned
                .insert((lane.topic.clone(), lane.partition), self.lane_last);
            self.lanes.insert(self.lane_last, lane);
        }
    }

    fn waiting(&self) -> Option<u64> {
        let waiting = |lane: &Lane| {
            let end = lane.broker_end?;
            Some(end.saturating_sub(lane.floor.end()?))
        };
        self.lanes
            .values()
            .filter_map(waiting)
            .reduce(|sum, more| sum.saturating_add(more))
    }
}

impl Group {
    pub(super) fn new(
        incoming: mpsc::UnboundedSender<Incoming>,
        notes: mpsc::UnboundedReceiver<Note>,
        waiting: watch::Sender<Option<u64>>,
        patience: Duration,
    ) -> Self {
        let books = Books {
            lanes: HashMap::new(),
            assigned: HashMap::new(),
            lane_last: 0,
            notes,
            over: false,
            closed: None,
        };
        Self {
            books: Mutex::new(books),
            incoming,
            waiting,
            patience,
        }
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing new of these partitions starts, running handlers finish, and the finished offsets are
    /// committed.
    fn revoke(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        // The engine has ended, and everything is committed.
        if self.books().over {
            return;
        }
        let mut leaving = Vec::new();
        for partition in partitions.elements() {
            let place = (partition.topic().to_owned(), partition.partition());
            let mut books = self.books();
            let mut lane = books.assigned.remove(&place);
            while let Some(left) = lane {
                leaving.push(left);
                lane = books.lanes.get(&left).and_then(|lane| lane.after);
            }
        }
        let quiet: Vec<threads::Receiver<()>> = leaving.iter().filter_map(|lane| self.tell(*lane)).collect();
        let end = Instant::now() + self.patience;
        for quiet in quiet {
            // A closed channel, not a message, means that nothing is running any more.
            let waited = quiet.recv_timeout(end.saturating_duration_since(Instant::now()));
            if waited == Err(threads::RecvTimeoutError::Timeout) {
                tracing::warn!("a partition is given up while a handler still works on one of its events");
            }
        }
        let mut books = self.books();
        books.read_notes();
        let done = books.uncommitted(Some(&leaving));
        books.lanes.retain(|lane, _| !leaving.contains(lane));
        drop(books);
        if done.count() > 0
            && !consumer.assignment_lost()
            && let Err(error) = consumer.commit(&done, CommitMode::Sync)
        {
            tracing::debug!(%error, "could not commit the offsets of revoked partitions");
        }
    }

    fn tell(&self, lane: u64) -> Option<threads::Receiver<()>> {
        let (quiet, waiting) = threads::channel();
        self.incoming.send(Incoming::Revoked { lane, quiet }).ok()?;
        Some(waiting)
    }
}

impl ClientContext for Group {
    fn stats(&self, statistics: Statistics) {
        let mut books = self.books();
        for lane in books.lanes.values_mut() {
            let topic = statistics.topics.get(&lane.topic);
            let partition = topic.and_then(|topic| topic.partitions.get(&lane.partition));
            lane.broker_end = partition.and_then(|partition| u64::try_from(partition.ls_offset).ok());
        }
        self.waiting.send_replace(books.waiting());
    }

    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        // The offset was reset: what lies between was deleted, or is read again.
        if facility == "OFFSET" {
            tracing::warn!(facility, message, "message of the Kafka client");
            return;
        }
        tracing::debug!(facility, message, "message of the Kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "Kafka");
    }
}

impl ConsumerContext for Group {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => self.books().assign(partitions),
            Rebalance::Revoke(partitions) => self.revoke(consumer, partitions),
            Rebalance::Error(error) => tracing::warn!(%error, "the Kafka rebalance failed"),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!(%error, "could not commit offsets; the next commit includes them");
            let mut books = self.books();
            books.lanes.values_mut().for_each(|lane| lane.committed = None);
        }
    }
}
