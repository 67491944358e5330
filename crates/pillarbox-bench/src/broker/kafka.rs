//! Kafka, with a producer of the client library that has the same settings as the sink's own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, anyhow, bail};
use async_trait::async_trait;
use pillarbox_relay::{
    connect::SinkOptions,
    envelope,
    sink::{
        Outgoing,
        kafka::{self, CLOUDEVENTS},
    },
};
use rdkafka::{
    ClientConfig, ClientContext, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, FutureProducer, FutureRecord, Producer, ProducerContext, ThreadedProducer},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{Arrival, Broker};

/// Partitions of each topic created here, as many as the measured topic has.
const PARTITIONS: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct Kafka {
    /// The settings of a producer, as in the sink.
    producer: ClientConfig,
    /// The settings of any other client.
    connection: ClientConfig,
    topic: String,
    /// Reads the offsets of the topic. It is created once, because connecting takes a while.
    watch: Arc<BaseConsumer>,
}

pub(super) struct OneByOne {
    producer: FutureProducer,
    topic: String,
}

/// Counts deliveries and makes room for more events.
struct Reports {
    room: Arc<Semaphore>,
    failed: Arc<AtomicU64>,
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.room.add_permits(1);
    }
}

pub(super) fn open(options: &SinkOptions, _stream: &str, topic: &str) -> Result<Arc<dyn Broker>> {
    Ok(Arc::new(Kafka::new(options, topic)?))
}

impl Kafka {
    fn new(options: &SinkOptions, topic: &str) -> Result<Self> {
        let (mut producer, mut connection) =
            kafka::client_settings(options).map_err(|error| anyhow!(error))?;
        // Errors show in the results, so the client's own log is not needed.
        for config in [&mut producer, &mut connection] {
            config
                .set_log_level(RDKafkaLogLevel::Critical)
                .set("log_level", "2");
        }
        let mut config = connection.clone();
        config
            .set("group.id", "pillarbox-bench")
            .set("enable.auto.commit", "false");
        Ok(Self {
            producer,
            connection,
            topic: topic.to_owned(),
            watch: Arc::new(config.create()?),
        })
    }

    /// Creates a second topic, so that a yardstick does not mix with the measured events.
    async fn side_topic(&self, name: &str) -> Result<String> {
        let topic = format!("{}-{name}", self.topic);
        let admin: AdminClient<DefaultClientContext> = self.connection.create()?;
        let new = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        for made in admin.create_topics([&new], &options).await? {
            match made {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, error)) => bail!("can't create the topic {topic}: {error}"),
            }
        }
        Ok(topic)
    }

    /// Reads every partition to its end. The events of a key are in one partition.
    fn read(&self, mut each: impl FnMut(Arrival) -> bool) -> Result<()> {
        let ends = ends(&self.watch, &self.topic)?;
        let mut left: u64 = ends
            .iter()
            .map(|(_, low, high)| (high - low).unsigned_abs())
            .sum();
        let mut partitions = TopicPartitionList::new();
        for (partition, _, _) in &ends {
            partitions.add_partition_offset(&self.topic, *partition, Offset::Beginning)?;
        }
        self.watch.assign(&partitions)?;
        while left > 0 {
            let message = self.watch.poll(PATIENCE).context("the topic ended early")??;
            let millis = message.timestamp().to_millis().unwrap_or_default();
            let arrival = Arrival {
                mark: serde_json::from_slice(message.payload().unwrap_or_default())?,
                at: SystemTime::UNIX_EPOCH + Duration::from_millis(millis.unsigned_abs()),
            };
            if !each(arrival) {
                break;
            }
            left -= 1;
        }
        Ok(())
    }
}

#[async_trait]
impl Broker for Kafka {
    /// One look takes seven requests.
    fn look_every_ms(&self) -> u64 {
        50
    }

    async fn arrived(&self) -> Result<u64> {
        let (watch, topic) = (self.watch.clone(), self.topic.clone());
        spawn_blocking(move || {
            let ends = ends(&watch, &topic)?;
            Ok(ends
                .iter()
                .map(|(_, low, high)| (high - low).unsigned_abs())
                .sum())
        })
        .await?
    }

    async fn read_back(&self, each: &mut (dyn FnMut(Arrival) + Send)) -> Result<()> {
        let (sender, mut arrivals) = tokio::sync::mpsc::channel(1_000);
        let this = self.clone();
        let reading = spawn_blocking(move || this.read(|arrival| sender.blocking_send(arrival).is_ok()));
        while let Some(arrival) = arrivals.recv().await {
            each(arrival);
        }
        reading.await?
    }

    async fn pure(&self, events: Vec<Outgoing>, in_flight_max: usize) -> Result<f64> {
        let topic = self.side_topic("pure").await?;
        let room = Arc::new(Semaphore::new(in_flight_max));
        let failed = Arc::new(AtomicU64::new(0));
        let reports = Reports {
            room: room.clone(),
            failed: failed.clone(),
        };
        let producer: ThreadedProducer<Reports> = self.producer.create_with_context(reports)?;
        // Connect first: otherwise the first message waits for the connection and the producer id.
        producer.client().fetch_metadata(Some(&topic), PATIENCE)?;
        let began = Instant::now();
        for outgoing in &events {
            room.acquire().await?.forget();
            let message = envelope::message(outgoing, CLOUDEVENTS).map_err(|error| anyhow!(error))?;
            let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
            for (name, value) in &message.headers {
                headers = headers.insert(Header {
                    key: name,
                    value: Some(value.as_bytes()),
                });
            }
            let record = BaseRecord::to(&topic)
                .key(message.key)
                .payload(&message.body[..])
                .headers(headers);
            producer.send(record).map_err(|(error, _)| error)?;
        }
        let all = u32::try_from(in_flight_max)?;
        tokio::time::timeout(PATIENCE, room.acquire_many(all))
            .await
            .context("the bare client got no answer about its last events")??
            .forget();
        match failed.load(Ordering::Relaxed) {
            0 => Ok(began.elapsed().as_secs_f64()),
            failed => bail!("{failed} events of the bare client failed"),
        }
    }

    async fn one_by_one(&self) -> Result<Box<dyn super::OneByOne>> {
        let mut config = self.producer.clone();
        // The loop waits for each event, so lingering has no benefit.
        config.set("linger.ms", "0");
        Ok(Box::new(OneByOne {
            topic: self.side_topic("naive").await?,
            producer: config.create()?,
        }))
    }

    async fn clear(&self) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = self.connection.create()?;
        let names = [
            self.topic.clone(),
            format!("{}-pure", self.topic),
            format!("{}-naive", self.topic),
        ];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // If a yardstick was skipped, its topic does not exist.
        admin.delete_topics(&names, &AdminOptions::new()).await?;
        Ok(())
    }
}

#[async_trait]
impl super::OneByOne for OneByOne {
    async fn publish(&self, id: &str, payload: String) -> Result<()> {
        let headers = OwnedHeaders::new().insert(Header {
            key: "id",
            value: Some(id),
        });
        let record = FutureRecord::to(&self.topic)
            .key(id)
            .payload(&payload)
            .headers(headers);
        let sent = self.producer.send(record, PATIENCE).await;
        sent.map(drop).map_err(|(error, _)| error.into())
    }
}

/// Each partition with its first offset and its next one.
fn ends(client: &BaseConsumer, topic: &str) -> Result<Vec<(i32, i64, i64)>, KafkaError> {
    let metadata = client.fetch_metadata(Some(topic), PATIENCE)?;
    let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
    partitions
        .map(|partition| {
            let (low, high) = client.fetch_watermarks(topic, partition.id(), PATIENCE)?;
            Ok((partition.id(), low, high))
        })
        .collect()
}
