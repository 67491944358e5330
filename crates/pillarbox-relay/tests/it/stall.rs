//! A relay that makes no progress notices it, reports what it waits for and starts over. If that does not
//! help, it ends with an error. The tests freeze each kind of job in turn.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    engine::RelayError,
    engine::{Engine, EngineHandle, Options},
    route::Routes,
    settlement::Settlement,
    sink::{self, Outcome, Outgoing, SinkError},
    store::{
        Census, Due, DuePlace, HeldLane, Page, PageLimit, Reader, RelayId, Settled, Store, StoreError,
        Trouble,
    },
};
use pillarbox_testkit::{
    memory::{MemoryStore, Status},
    wait,
};
use rand::{SeedableRng, rngs::StdRng};

use crate::simulation::broker::Broker;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    StoreCheck,
    Heartbeat,
    TakeLanes,
    BlockedKeys,
    Read,
    Settle,
    Due,
    Publish,
    SinkCheck,
}

/// The jobs of the store, and what the relay must report for each.
const OF_THE_STORE: [(Job, &str); 7] = [
    (Job::StoreCheck, "lease lanes"),
    (Job::Heartbeat, "renew the lanes"),
    (Job::TakeLanes, "lease lanes"),
    (Job::BlockedKeys, "lease lanes"),
    (Job::Read, "return new events"),
    (Job::Settle, "write the results"),
    (Job::Due, "return due events"),
];

/// Freezes a number of calls of one kind of job. The first heartbeats pass, because without them there is no
/// tenure.
#[derive(Clone)]
struct Freezer {
    job: Job,
    calls: Arc<AtomicU32>,
    spared: Arc<AtomicU32>,
}

impl Freezer {
    fn new(job: Job, calls: u32) -> Self {
        let spared = u32::from(job == Job::Heartbeat);
        Self {
            job,
            calls: Arc::new(AtomicU32::new(calls)),
            spared: Arc::new(AtomicU32::new(spared)),
        }
    }

    async fn call<T>(&self, job: Job, call: impl Future<Output = T>) -> T {
        let take = |count: &AtomicU32| {
            count
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
        };
        if job == self.job && !take(&self.spared) && take(&self.calls) {
            std::future::pending::<()>().await;
        }
        call.await
    }
}

struct Frozen<T> {
    freezer: Freezer,
    inner: T,
}

#[async_trait]
impl Store for Frozen<MemoryStore> {
    async fn check(&self) -> Result<(), StoreError> {
        self.freezer.call(Job::StoreCheck, self.inner.check()).await
    }

    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        let beat = self.inner.heartbeat(relay, name, ttl, held);
        self.freezer.call(Job::Heartbeat, beat).await
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        let taken = self.inner.take_lanes(relay, count, ttl);
        self.freezer.call(Job::TakeLanes, taken).await
    }

    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError> {
        self.inner.release_lanes(relay, lanes).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        self.inner.leave(relay).await
    }

    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader> {
        Box::new(Frozen {
            freezer: self.freezer.clone(),
            inner: self.inner.reader(lanes),
        })
    }

    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        let settled = self.inner.settle(held, settlement);
        self.freezer.call(Job::Settle, settled).await
    }

    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        let due = self.inner.due(held, after, limit);
        self.freezer.call(Job::Due, due).await
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(u8, u64)>, StoreError> {
        let blocked = self.inner.blocked_keys(lanes);
        self.freezer.call(Job::BlockedKeys, blocked).await
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        self.inner.report(relay, troubles).await
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        self.inner.troubles().await
    }

    fn statements(&self) -> u64 {
        self.inner.statements()
    }
}

#[async_trait]
impl Reader for Frozen<Box<dyn Reader>> {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        self.freezer.call(Job::Read, self.inner.next(limit)).await
    }
}

#[async_trait]
impl Sink for Frozen<Broker> {
    fn capabilities(&self) -> sink::Capabilities {
        self.inner.capabilities()
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.freezer.call(Job::SinkCheck, self.inner.check()).await
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        self.freezer.call(Job::Publish, self.inner.publish(batch)).await
    }
}

/// Starts a relay with ten events to deliver. The given number of calls of this job freezes.
fn start(job: Job, calls: u32) -> (EngineHandle, MemoryStore, Broker) {
    let freezer = Freezer::new(job, calls);
    let store = MemoryStore::default();
    let broker = Broker::new(&mut StdRng::seed_from_u64(1));
    let mut transaction = store.begin();
    for n in 0..10 {
        transaction.enqueue(
            Event::to("t.x")
                .event_type("X")
                .aggregate("thing", format!("key-{n}"))
                .payload("{}"),
        );
    }
    transaction.commit();
    let sink: Arc<dyn Sink> = Arc::new(Frozen {
        freezer: freezer.clone(),
        inner: broker.clone(),
    });
    let relay = Engine {
        store: Arc::new(Frozen {
            freezer,
            inner: store.clone(),
        }),
        sinks: BTreeMap::from([("sim".into(), sink)]),
        routes: Routes::to_one("sim"),
        options: Options::default(),
    };
    (relay.start(), store, broker)
}

async fn all_published(store: &MemoryStore) {
    wait::until_ok_within(Duration::from_secs(300), async || {
        let rows = store.rows();
        match rows.iter().find(|row| row.status != Status::Published) {
            Some(row) => Err(format!("an event is not delivered: {:?}", row.status)),
            None => Ok(()),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_relay_with_a_frozen_job_says_so_and_starts_over() {
    for (job, waits_for) in OF_THE_STORE {
        let (relay, store, _) = start(job, 1);
        let said = wait::until_ok_within(Duration::from_secs(120), async || {
            let stalled = relay.progress.report().stalled;
            let said = stalled.map(|stalled| stalled.why);
            said.ok_or_else(|| format!("{job:?}: nothing was said"))
        })
        .await;
        assert!(said.contains(waits_for), "{job:?}: {said}");
        assert!(
            relay
                .progress
                .troubles("relay")
                .iter()
                .any(|trouble| trouble.why.contains(waits_for)),
            "{job:?}: `status` must show it"
        );
        all_published(&store).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(
            relay.progress.report().stalled,
            None,
            "{job:?}: the stall must be over"
        );
        relay.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_job_stays_frozen_ends_with_an_error() {
    for (job, _) in OF_THE_STORE {
        let (relay, ..) = start(job, u32::MAX);
        let ended = tokio::time::timeout(Duration::from_secs(600), relay.finished()).await;
        let error = ended
            .unwrap_or_else(|_| panic!("{job:?}: the relay did not end"))
            .unwrap_err();
        assert!(matches!(error, RelayError::Stalled { .. }), "{job:?}: {error}");
        assert!(
            error.to_string().contains("waiting for the database"),
            "{job:?}: {error}"
        );
    }
}

/// This is not a stall of the relay: the destination is paused, reported and tried again.
#[tokio::test(start_paused = true)]
async fn a_sink_that_never_answers_a_batch_costs_that_batch_its_time_and_no_attempt() {
    let (relay, store, _) = start(Job::Publish, 3);
    all_published(&store).await;
    assert!(store.rows().iter().all(|row| row.stored.attempts == 0));
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_never_answers_a_check_is_asked_again() {
    let (relay, store, broker) = start(Job::SinkCheck, 3);
    broker.set_away(true);
    wait::until("the sink is seen to be away", async || {
        !relay.progress.troubles("relay").is_empty()
    })
    .await;
    broker.set_away(false);
    all_published(&store).await;
    assert!(store.rows().iter().all(|row| row.stored.attempts == 0));
    relay.stop().await.unwrap();
}
