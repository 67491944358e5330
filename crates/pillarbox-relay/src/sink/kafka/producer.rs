//! A Kafka client that sends in order or not at all, and whose end is known.
//!
//! How order is kept:
//! - The client's idempotent producer keeps the order of a partition through its own retries.
//! - `enable.gapless.guarantee` makes it end with a fatal error when a broker refuses something permanently, instead of
//!   continuing with the next events.
//! - Its own timeout for events is off, because single events could expire between others.
//! - So the events that reach a partition are always the first ones of those that the producer was given for it. None
//!   is missing in between.
//! - If a batch waits too long, or the producer ends, the producer is *retired*. It gets nothing more, and the next
//!   batch gets a new producer. The old one drops its remaining events when its last batch is done. Whatever it may
//!   still have sent are copies, in order.

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

/// How long the thread that polls for reports waits for one.
const POLL: Duration = Duration::from_millis(100);
pub(super) struct Producer {
    /// `Some` until dropped. The thread has the other reference and drops its own last.
    client: Option<Arc<BaseProducer<Reports>>>,
    stop: Arc<AtomicBool>,
    retired: AtomicBool,
    known: Mutex<Known>,
}

/// Topics and keys, by hash, whose partition has events of this producer. There a broker knows its sequence numbers.
struct Known {
    keys: HashSet<u64>,
    since: Instant,
    hasher: RandomState,
}

/// By default, a broker forgets a producer that was idle for a day.
const KNOWN_FOR: Duration = Duration::from_secs(600);
const KNOWN_MAX: usize = 100_000;

impl Producer {
    pub(super) fn start(address: &Address, role: Role, timeout: Duration) -> Result<Self, SinkError> {
        let config = settings::producer(address, role, timeout);
        let client = BaseProducer::from_config_and_context(&config, Reports::default()).map_err(|error| {
            misconfigured(format!(
                "can't create the Kafka client: {}",
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
            .map_err(|error| misconfigured(format!("can't start a thread for the Kafka client: {error}")))?;
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

    /// Asks the client itself, because its notification of the end may come after the reports that the end caused.
    pub(super) fn is_over(&self) -> bool {
        self.end().is_some()
    }

    /// Whether it may get new batches.
    pub(super) fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && !self.is_over()
    }

    /// Why it has ended.
    pub(super) fn end(&self) -> Option<(Code, String)> {
        self.client().client().fatal_error()
    }

    /// Whether this producer has delivered an event of this key to the topic.
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

    /// Asks the brokers for metadata of one topic or of all. `read` evaluates the answer.
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

    /// Why an event got no report in time. While one broker is connected, an outage of another may affect only this
    /// event.
    pub(super) fn silence(&self, timeout: Duration) -> SinkError {
        let health = self.reports().health.borrow();
        match &health.problem {
            Some(problem) if health.all_down || credentials_refused(problem) => cannot_reach(problem),
            _ => timed_out(timeout),
        }
    }

    pub(super) async fn purge(&self) {
        let client = self.client().clone();
        // `purge` waits for the threads that own the queues.
        let _ = spawn_blocking(move || client.purge(PurgeConfig::default().queue())).await;
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Dropping the client waits for its threads, so our thread does it.
        self.client = None;
        self.stop.store(true, Ordering::Relaxed);
    }
}
