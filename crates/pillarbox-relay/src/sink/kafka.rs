//! Kafka: gives a batch to the client's queue without waiting, then collects the reports of its events.
//!
//! - `address`: brokers and settings of an address
//! - `audit`: looking up delivered events
//! - `producer`: the client, and how it keeps order
//! - `settings`: the client's settings
//! - `reports`: what the client reports
//! - `flight`: events in a producer
//! - `seen`: which topics exist
//! - `publish`: a batch
//! - `transactions`: a batch that becomes visible completely or not at all
//! - `outcome`: the meaning of an answer
//! - `topics`: comparing and creating topics

mod address;
mod audit;
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
    audit::Receipt,
    producer::Producer,
    seen::Seen,
    settings::{BATCH_BYTES, Role},
    transactions::Transactions,
};
use super::{
    Audit, Capabilities, DestinationName, Outcome, Outgoing, Sink, SinkError, StreamState, Streams,
    TopicSpec,
    audit::{Audited, Sample},
};
use crate::{connect::SinkOptions, envelope::Binding};

/// The Kafka binding of CloudEvents.
pub const CLOUDEVENTS: Binding = Binding {
    prefix: pillarbox::wire::cloudevents::KAFKA_PREFIX,
    escapes: false,
};

/// The longest wait for an answer when the state of the sink is asked. The client keeps trying and is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Requests do not become smaller than this.
const BATCH_BYTES_MIN: u32 = 1_000;

/// The client's settings for a producer of this sink, and for any other client of these brokers. For comparisons in
/// measurements.
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
    /// Created at the first use, and again after one has ended.
    producer: Mutex<Option<Arc<Producer>>>,
    /// For events that may be refused.
    one_by_one: Mutex<Option<Arc<Producer>>>,
    /// The size of one request to a partition, at most.
    batch_bytes: AtomicU32,
    seen: Seen,
    transactions: Transactions,
    delivered: Sample<Receipt>,
}

impl KafkaSink {
    /// `kafka://[user[:password]@]host[:port][,host…][?ca=FILE&sasl=scram-sha-256&…]`.
    ///
    /// Reads the files now and connects at the first use. After that it always reconnects.
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
            delivered: Sample::default(),
        })
    }

    /// The current producer, or a new one if it has ended.
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

    /// A request was refused because of its size, but its events were accepted one by one. So the topic accepts less
    /// than we assumed.
    fn send_smaller_batches(&self) {
        let bytes = self.batch_bytes.load(Ordering::Relaxed);
        let less = (bytes / 2).max(BATCH_BYTES_MIN);
        self.batch_bytes.store(less, Ordering::Relaxed);
        tracing::info!(
            bytes = less,
            "a topic accepts only smaller requests: requests to Kafka are smaller from now on"
        );
        let kept = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().for_each(|producer| producer.retire());
    }

    /// Drops producers that accept nothing more.
    fn drop_unusable(&self) {
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
            // No `payload_bytes_max`: each topic has its own limit, and says so when it refuses an event.
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        topics::answers(&self.producer()?, self.answer_within()).await
    }

    /// A partition if the number of partitions is known, otherwise the topic.
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

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

#[async_trait]
impl Audit for KafkaSink {
    async fn audit(&self) -> Audited {
        let entries = self.delivered.open();
        if entries.is_empty() {
            return Audited::default();
        }
        match audit::look_up(&self.address, self.publish_timeout, entries).await {
            Ok(judged) => self.delivered.close(judged),
            Err(why) => Audited::nothing(why),
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
