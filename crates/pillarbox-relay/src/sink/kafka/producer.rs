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
    config::FromClientConfigAndContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
    metadata::Metadata,
    producer::{BaseProducer, Producer as _, PurgeConfig},
};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    address::Address,
    flight::Flight,
    outcome::{cannot_reach, credentials_refused, misconfigured, timed_out},
    reports::Reports,
    settings::{self, Role},
};
use crate::sink::SinkError;

/// How long the thread that hands out reports sleeps when there are none.
const POLL: Duration = Duration::from_millis(100);
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

impl Producer {
    pub(super) fn start(address: &Address, role: Role, timeout: Duration) -> Result<Self, SinkError> {
        let config = settings::producer(address, role, timeout);
        let client = BaseProducer::from_config_and_context(&config, Reports::default()).map_err(|error| {
            misconfigured(format!(
                "the Kafka client can't be made: {}",
                settings::plain(&error)
            ))
        })?;
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
        Flight::new(self.clone(), events)
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

    pub(super) async fn purge(&self) {
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
