//! Kafka: a batch is given to the client's queue without waiting, then the reports of its events are gathered.
//!
//! Read on in `address` (where it goes), `producer` (the client, and what order rests on), `settings` (how it is set),
//! `reports` (what it tells), `flight` (events in it), `seen` (which topics there are), `publish` (a batch on its
//! way), `transactions` (a batch that is visible whole or not at all), `outcome` (what an answer means), `topics`
//! (comparing and making).

mod address;
mod flight;
mod outcome;
mod partition;
mod producer;
mod publish;
mod reports;
mod seen;
mod settings;
mod topics;
mod transactions;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use pillarbox::Event;
use rdkafka::ClientConfig;

use self::{
    address::Address,
    producer::Producer,
    seen::Seen,
    settings::{BATCH_BYTES, Role},
    transactions::Transactions,
};
use super::{
    Capabilities, DestinationName, Outcome, Outgoing, Sink, SinkError, StreamState, Streams, TopicSpec,
};
use crate::{connect::SinkOptions, envelope::Binding};

/// The Kafka binding of CloudEvents.
pub const CLOUDEVENTS: Binding = Binding {
    prefix: "ce_",
    escapes: false,
};

/// Whoever asks how the sink is gets an answer by then. The client goes on trying, and is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Requests are made smaller down to this.
const BATCH_BYTES_MIN: u32 = 1_000;

/// The client's settings for a producer as this sink has it, and for any other client of these brokers: for measuring
/// against.
pub fn client_settings(options: &SinkOptions) -> Result<(ClientConfig, ClientConfig), SinkError> {
    let address = Address::parse(&options.url)?;
    let role = Role::Batches { bytes: BATCH_BYTES };
    let timeout = options.publish_timeout;
    Ok((
        settings::producer(&address, role, timeout),
        settings::connection(&address, timeout),
    ))
}

pub struct KafkaSink {
    address: Address,
    topics: Vec<TopicSpec>,
    publish_timeout: Duration,
    /// Made at the first use, and again when one has come to its end.
    producer: Mutex<Option<Arc<Producer>>>,
    /// For events that may be refused.
    one_by_one: Mutex<Option<Arc<Producer>>>,
    /// Of one request to a partition, at most.
    batch_bytes: AtomicU32,
    seen: Seen,
    transactions: Transactions,
}

impl KafkaSink {
    /// `kafka://[user[:password]@]host[:port][,host…][?ca=FILE&sasl=scram-sha-256&…]`.
    ///
    /// Reads the files, and connects at the first use; from then on it reconnects for ever.
    pub fn open(options: &SinkOptions) -> Result<Self, SinkError> {
        Ok(Self {
            address: Address::parse(&options.url)?,
            topics: options.topics.clone(),
            publish_timeout: options.publish_timeout,
            producer: Mutex::default(),
            one_by_one: Mutex::default(),
            batch_bytes: AtomicU32::new(BATCH_BYTES),
            seen: Seen::default(),
            transactions: Transactions::default(),
        })
    }

    /// The producer in use; a new one where that has come to its end.
    fn producer(&self) -> Result<Arc<Producer>, SinkError> {
        let bytes = self.batch_bytes.load(Ordering::Relaxed);
        self.kept(&self.producer, Role::Batches { bytes })
    }

    fn one_by_one(&self) -> Result<Arc<Producer>, SinkError> {
        self.kept(&self.one_by_one, Role::OneByOne)
    }

    fn kept(&self, place: &Mutex<Option<Arc<Producer>>>, role: Role) -> Result<Arc<Producer>, SinkError> {
        let mut kept = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = kept.as_ref().filter(|producer| producer.is_usable()) {
            return Ok(producer.clone());
        }
        let made = Arc::new(Producer::start(&self.address, role, self.publish_timeout)?);
        *kept = Some(made.clone());
        Ok(made)
    }

    /// A request was refused for its size and its events were taken one by one: the topic takes less than we thought.
    fn send_smaller_batches(&self) {
        let bytes = self.batch_bytes.load(Ordering::Relaxed);
        let less = (bytes / 2).max(BATCH_BYTES_MIN);
        self.batch_bytes.store(less, Ordering::Relaxed);
        tracing::info!(
            bytes = less,
            "a topic takes less at once than others: requests to Kafka are smaller from now on"
        );
        let kept = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().for_each(|producer| producer.retire());
    }

    /// Of a producer that takes nothing more.
    fn let_go(&self) {
        for place in [&self.producer, &self.one_by_one] {
            let mut kept = place.lock().unwrap_or_else(PoisonError::into_inner);
            kept.take_if(|producer| !producer.is_usable());
        }
    }

    fn answer_within(&self) -> Duration {
        self.publish_timeout.min(ANSWER_MAX)
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            // The idempotent producer drops the copies of its own retries, not those of a later publish.
            deduplicates: false,
            // A topic's own affair, and told when it refuses.
            payload_bytes_max: None,
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        topics::answers(&self.producer()?, self.answer_within()).await
    }

    /// A partition, where the number of partitions is known; until then the topic.
    fn destination<'a>(&self, event: &'a Event, stream: Option<&'a str>) -> DestinationName<'a> {
        let topic = stream.unwrap_or(&event.topic);
        let partitions = self.seen.partitions(topic);
        DestinationName {
            stream: None,
            topic: Some(topic),
            partition: partitions.map(|count| partition::of(event.key().as_bytes(), count)),
        }
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        match self.address.transactional_id {
            Some(_) => transactions::publish(self, batch).await,
            None => publish::publish(self, batch).await,
        }
    }
}

#[async_trait]
impl Streams for KafkaSink {
    async fn check_streams(&self) -> Result<Vec<StreamState>, SinkError> {
        topics::compare_all(self).await
    }

    async fn apply_streams(&self) -> Result<Vec<StreamState>, SinkError> {
        topics::apply_all(self).await
    }
}
