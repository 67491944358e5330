//! A client of Kafka as we need it: it sends in order or not at all, and its end is known.
//!
//! What order rests on: the client's idempotent producer keeps the order of a partition through its own retries, and
//! `enable.gapless.guarantee` makes it end (a fatal error) when a broker refuses something for good, instead of going on
//! with what follows. Its own timeout for events is off, because it would let single events expire between their
//! neighbours. So what reaches a partition is always a beginning of what the producer was given for it. Whoever waits too
//! long, or meets the end, *retires* the producer: nothing more is given to it, the next batch gets a new one, and the old
//! one drops what it still has as soon as the last batch in it is through. What it may still have sent are copies, in order.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{Header, OwnedHeaders},
    metadata::Metadata,
    producer::{BaseProducer, BaseRecord, Producer as _, PurgeConfig},
};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    address::Address,
    outcome::{cannot_reach, credentials_refused, misconfigured, timed_out},
    reports::{Inflight, PLACES_MAX, Report, Reports},
};
use crate::{envelope::Message, sink::SinkError};

/// How long the thread that hands out reports sleeps when there are none.
const POLL: Duration = Duration::from_millis(100);
/// How often what an ended producer still has is dropped, until everything in it has its report.
const PURGE_EVERY: Duration = Duration::from_millis(20);
/// Larger than any broker takes: whether an event is too large is the topic's to say.
const MESSAGE_BYTES_MAX: u32 = 256 << 20;
const QUEUE_KBYTES_MAX: u32 = 512 << 10;
/// Of one request to a partition, to begin with: as much as brokers take unless they are told otherwise.
pub(super) const BATCH_BYTES: u32 = 1_000_000;

/// What a producer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// As many events in one request as `bytes` hold.
    Batches { bytes: u32 },
    /// One event in a request, so that an answer is that event's own. Whoever gives it an event waits for the report before
    /// the next of that key, so it needs no sequence numbers: it starts at once, and a refusal does not end it.
    OneByOne,
    /// Batches in transactions.
    Transactions,
}

/// What a flight waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    All,
    /// Where one that failed is the end of all.
    FirstFailure,
}

pub(super) struct Producer {
    /// Always there until dropped; the thread has the other one, and is the last to let go.
    client: Option<Arc<BaseProducer<Reports>>>,
    stop: Arc<AtomicBool>,
    retired: AtomicBool,
    known: Mutex<Known>,
}

/// Topics and keys, by their hash, whose partition has events of this producer: there a broker knows its sequence numbers.
struct Known {
    keys: HashSet<u64>,
    since: Instant,
    hasher: RandomState,
}

/// A broker forgets a producer that has been quiet for a day, unless told otherwise.
const KNOWN_FOR: Duration = Duration::from_secs(600);
const KNOWN_MAX: usize = 100_000;

/// Why an event was not taken.
pub(super) enum NotTaken {
    /// It can't be made a message.
    Impossible(SinkError),
    /// The client refuses it.
    Refused(Code),
    /// There was no room in time.
    Full,
    /// The producer has ended.
    Over,
}

impl Producer {
    pub(super) fn start(address: &Address, role: Role, timeout: Duration) -> Result<Self, SinkError> {
        let config = config(address, role, timeout);
        let client = BaseProducer::from_config_and_context(&config, Reports::default())
            .map_err(|error| misconfigured(format!("the Kafka client can't be made: {}", plain(&error))))?;
        let client = Arc::new(client);
        let stop = Arc::new(AtomicBool::new(false));
        let (polled, stopped) = (client.clone(), stop.clone());
        std::thread::Builder::new()
            .name("pillarbox-kafka".into())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    polled.poll(POLL);
                }
            })
            .map_err(|error| misconfigured(format!("no thread for the Kafka client: {error}")))?;
        Ok(Self {
            client: Some(client),
            stop,
            retired: AtomicBool::new(false),
            known: Mutex::new(Known {
                keys: HashSet::new(),
                since: Instant::now(),
                hasher: RandomState::new(),
            }),
        })
    }

    pub(super) fn client(&self) -> &Arc<BaseProducer<Reports>> {
        match &self.client {
            Some(client) => client,
            None => unreachable!("only drop takes it"),
        }
    }

    pub(super) fn reports(&self) -> &Reports {
        self.client().context()
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Asked of the client itself: its word on the end may come after the reports that the end caused.
    pub(super) fn is_over(&self) -> bool {
        self.end().is_some()
    }

    /// Whether new batches may be given to it.
    pub(super) fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && !self.is_over()
    }

    /// Why it has ended.
    pub(super) fn end(&self) -> Option<(Code, String)> {
        self.client().client().fatal_error()
    }

    /// Whether an event of this key is in the topic that this producer brought.
    pub(super) fn is_known_at(&self, topic: &str, key: &str) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.since.elapsed() > KNOWN_FOR || known.keys.len() > KNOWN_MAX {
            known.keys.clear();
            known.since = Instant::now();
        }
        known.keys.contains(&known.hasher.hash_one((topic, key)))
    }

    pub(super) fn known_at(&self, topic: &str, key: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = known.hasher.hash_one((topic, key));
        known.keys.insert(hash);
    }

    pub(super) fn flight(self: &Arc<Self>, events: usize) -> Flight {
        assert!(events <= PLACES_MAX, "a batch has at most {PLACES_MAX} events");
        let (number, inflight) = self.reports().open(events);
        Flight {
            producer: self.clone(),
            number,
            inflight,
        }
    }

    /// Asks the brokers for what they know: of one topic, or of all. `read` looks at the answer.
    pub(super) async fn metadata<T: Send + 'static>(
        self: &Arc<Self>,
        topic: Option<String>,
        timeout: Duration,
        read: impl FnOnce(&Metadata) -> T + Send + 'static,
    ) -> Result<T, SinkError> {
        let client = self.client().clone();
        let asking = spawn_blocking(move || {
            let metadata = client.client().fetch_metadata(topic.as_deref(), timeout)?;
            Ok::<T, KafkaError>(read(&metadata))
        });
        let mut health = self.reports().health.subscribe();
        let refused = health.wait_for(|health| health.problem.as_ref().is_some_and(credentials_refused));
        let answer = tokio::select! {
            answer = asking => answer,
            _ = refused => return Err(self.away(timeout)),
        };
        match answer {
            Ok(Ok(answer)) => {
                self.reports().went_well();
                Ok(answer)
            }
            Ok(Err(_)) => Err(self.away(timeout)),
            Err(error) => Err(misconfigured(format!("the Kafka client failed: {error}"))),
        }
    }

    /// Why no broker answered in time.
    fn away(&self, timeout: Duration) -> SinkError {
        match &self.reports().health.borrow().problem {
            Some(problem) => cannot_reach(problem),
            None => timed_out(timeout),
        }
    }

    /// Why an event had no report in time. As long as one broker is connected, that another is away may be this event's
    /// trouble only.
    pub(super) fn silence(&self, timeout: Duration) -> SinkError {
        let health = self.reports().health.borrow();
        match &health.problem {
            Some(problem) if health.all_down || credentials_refused(problem) => cannot_reach(problem),
            _ => timed_out(timeout),
        }
    }

    async fn purge(&self) {
        let client = self.client().clone();
        // It waits for the threads that have the queues.
        let _ = spawn_blocking(move || client.purge(PurgeConfig::default().queue())).await;
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Letting go of the client waits for its threads, so the thread does it.
        self.client = None;
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Events on their way in one producer. Dropped before everything has its report, it retires the producer: what is still in
/// there must not be sent for ever.
pub(super) struct Flight {
    producer: Arc<Producer>,
    number: u64,
    inflight: Arc<Inflight>,
}

impl Flight {
    /// Gives an event to the client, and waits for room where there is none.
    pub(super) async fn send(
        &self,
        place: usize,
        topic: &str,
        message: &Message<'_>,
        deadline: Instant,
    ) -> Result<(), NotTaken> {
        let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
        for (name, value) in &message.headers {
            headers = headers.insert(Header {
                key: name,
                value: Some(value.as_bytes()),
            });
        }
        let mut record = BaseRecord::with_opaque_to(topic, Reports::tag(self.number, place))
            .key(message.key)
            .payload(&message.body[..])
            .headers(headers);
        let reports = self.producer.reports();
        loop {
            let mut room = std::pin::pin!(reports.room.notified());
            // From now on no report is missed, also one that comes before we wait.
            room.as_mut().enable();
            let (error, back) = match self.producer.client().send(record) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            match error.rdkafka_error_code().unwrap_or(Code::Unknown) {
                Code::QueueFull => {}
                // A transaction that has failed already takes nothing more.
                Code::Fatal | Code::State => return Err(NotTaken::Over),
                code => return Err(NotTaken::Refused(code)),
            }
            record = back;
            if tokio::time::timeout_at(deadline, room).await.is_err() {
                return Err(NotTaken::Full);
            }
        }
    }

    /// Whether something of it was lost already.
    pub(super) fn has_failed(&self) -> bool {
        self.inflight.has_failed()
    }

    /// An event that was not sent has nothing to wait for.
    pub(super) fn skip(&self, place: usize) {
        self.inflight.report(place, Report::NotSent);
    }

    /// Waits for all reports until the deadline, and takes those that came.
    pub(super) async fn reports(self, deadline: Instant, until: Until) -> Vec<Option<Report>> {
        let mut health = self.producer.reports().health.subscribe();
        let ended = tokio::select! {
            biased;
            () = self.inflight.complete_or_failed(), if until == Until::FirstFailure => return self.inflight.take(),
            () = self.inflight.complete() => false,
            _ = health.wait_for(|health| health.over) => true,
            () = tokio::time::sleep_until(deadline) => false,
        };
        // What was not sent yet comes back at once; what a broker answers to what was sent comes after that, and what it
        // would send again for that answer stays in the queue of a producer that sends no more.
        while ended && !self.inflight.is_complete() && Instant::now() < deadline {
            self.producer.purge().await;
            let _ = tokio::time::timeout(PURGE_EVERY, self.inflight.complete()).await;
        }
        if ended || !self.inflight.is_complete() {
            self.producer.retire();
        }
        self.inflight.take()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.inflight.is_complete() {
            self.producer.retire();
        }
        self.producer.reports().close(self.number);
    }
}

/// What every client of this address has in common.
pub(super) fn connection(address: &Address, timeout: Duration) -> ClientConfig {
    let mut config = ClientConfig::new();
    address.connect(&mut config);
    let patience = timeout
        .clamp(Duration::from_secs(1), Duration::from_secs(60))
        .as_millis();
    config
        .set("client.id", "pillarbox")
        .set("socket.timeout.ms", patience.to_string())
        .set("socket.connection.setup.timeout.ms", patience.to_string())
        .set("reconnect.backoff.max.ms", "1000")
        .set("socket.keepalive.enable", "true")
        .set("enable.metrics.push", "false")
        .set_log_level(RDKafkaLogLevel::Warning);
    config
}

pub(super) fn config(address: &Address, role: Role, timeout: Duration) -> ClientConfig {
    let mut config = connection(address, timeout);
    let patience = timeout
        .clamp(Duration::from_secs(1), Duration::from_secs(900))
        .as_millis();
    config
        .set("acks", "all")
        .set("request.timeout.ms", patience.to_string())
        .set("retry.backoff.max.ms", "500")
        // As Java's clients choose a partition: consumers that join topics of both find a key in the same one.
        .set("partitioner", "murmur2_random")
        .set("compression.type", address.compression.name())
        .set("linger.ms", address.linger_ms.to_string())
        .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
        .set(
            "queue.buffering.max.messages",
            address.queue_events_max.to_string(),
        )
        .set("queue.buffering.max.kbytes", QUEUE_KBYTES_MAX.to_string())
        // A topic that a broker forgot is told before our own patience ends.
        .set("topic.metadata.propagation.max.ms", "1000");
    match role {
        Role::Batches { bytes } => config.set("batch.size", bytes.to_string()),
        Role::OneByOne => {
            return config
                .set("batch.num.messages", "1")
                .set("linger.ms", "0")
                .set("message.timeout.ms", "0")
                .clone();
        }
        Role::Transactions => config.set("batch.size", BATCH_BYTES.to_string()),
    };
    config.set("enable.idempotence", "true");
    match &address.transactional_id {
        Some(id) if role == Role::Transactions => {
            // A transaction that nobody ends keeps its topics' readers waiting for so long.
            let transaction = (timeout * 2)
                .clamp(Duration::from_secs(10), Duration::from_secs(600))
                .as_millis();
            config
                .set("transactional.id", id)
                .set("transaction.timeout.ms", transaction.to_string())
                .set("message.timeout.ms", transaction.to_string());
        }
        _ => {
            config
                .set("enable.gapless.guarantee", "true")
                .set("message.timeout.ms", "0");
        }
    }
    config
}

/// An error of the client that names a setting shows its value as well, which may be a secret.
pub(super) fn plain(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, what, setting, _) => format!("{what} ({setting})"),
        other => other.to_string(),
    }
}
