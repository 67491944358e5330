//! An application that changes an entity and enqueues its event in one session transaction, and a sink that
//! records what it receives.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mongodb::{
    Client, ClientSession, Collection,
    bson::{Document, doc},
    error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT},
    options::ReturnDocument,
};
use pillarbox::{EnqueueError, Event, EventId, Outbox};
use pillarbox_relay::{
    Sink,
    connect::{self, DatabaseOptions},
    engine::{Engine, EngineHandle, Options},
    retry::RetryPolicy,
    route::Routes,
    sink::{Capabilities, Outcome, Outgoing, SinkError, SinkErrorKind},
};
use pillarbox_testkit::{ledger::Ledger, wait};
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// What a transaction does before it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    pub(super) keys: usize,
    /// Per cent that are aborted in the end.
    pub(super) given_up: u32,
    /// Per cent that are kept open, for at most `held_open_max`.
    pub(super) held_open: u32,
    pub(super) held_open_max: Duration,
}

/// Commits `count` transactions of one or two events each, whatever the server does.
pub(super) async fn produce(
    client: Client,
    ledger: Arc<Ledger>,
    habits: Habits,
    count: usize,
    stop: Arc<AtomicBool>,
    seed: u64,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut done = 0;
    while done < count && !stop.load(Ordering::Relaxed) {
        let key = format!("key-{}", rng.random_range(0..habits.keys));
        let hold = (rng.random_range(0..100) < habits.held_open)
            .then(|| habits.held_open_max.mul_f64(rng.random_range(0.0..1.0)));
        let give_up = rng.random_range(0..100) < habits.given_up;
        let events: Vec<Event> = (0..rng.random_range(1..3)).map(|_| event(&key)).collect();
        match attempt(&client, &key, &events, hold, give_up).await {
            Ok(Some(last)) => {
                for (n, event) in (last + 1 - events.len() as u64..).zip(&events) {
                    ledger.committed(event.id.clone(), &key, n);
                }
                done += 1;
            }
            Ok(None) => events
                .iter()
                .for_each(|event| ledger.rolled_back(event.id.clone())),
            Err(_) => {
                // A lost commit is asked for again. Every other error means that nothing was written.
                events
                    .iter()
                    .for_each(|event| ledger.rolled_back(event.id.clone()));
                tokio::time::sleep(Duration::from_millis(rng.random_range(1..20))).await;
            }
        }
    }
}

fn event(key: &str) -> Event {
    Event::to("shop.order.placed")
        .event_type("OrderPlaced")
        .aggregate("order", key)
        .payload(r#"{"total": 990}"#)
}

/// Returns the number of the key's last event, or `None` if the transaction was aborted.
async fn attempt(
    client: &Client,
    key: &str,
    events: &[Event],
    hold: Option<Duration>,
    give_up: bool,
) -> Result<Option<u64>, EnqueueError> {
    let mut session = client.start_session().await?;
    session.start_transaction().await?;
    match write(&mut session, key, events).await {
        Ok(last) => {
            if let Some(hold) = hold {
                tokio::time::sleep(hold).await;
            }
            if give_up {
                session.abort_transaction().await?;
                return Ok(None);
            }
            commit(&mut session).await?;
            Ok(Some(last))
        }
        Err(error) => {
            let _ = session.abort_transaction().await;
            Err(error)
        }
    }
}

async fn write(session: &mut ClientSession, key: &str, events: &[Event]) -> Result<u64, EnqueueError> {
    let client = session.client();
    let entities: Collection<Document> = client.default_database().unwrap().collection("entities");
    let by = i64::try_from(events.len()).unwrap();
    let entity = entities
        .find_one_and_update(doc! { "_id": key }, doc! { "$inc": { "n": by } })
        .upsert(true)
        .return_document(ReturnDocument::After)
        .session(&mut *session)
        .await?;
    Outbox::default().enqueue_all(session, events).await?;
    Ok(u64::try_from(entity.unwrap().get_i64("n").unwrap()).unwrap())
}

/// Repeats the commit until its result is known.
pub(super) async fn commit(session: &mut ClientSession) -> Result<(), Error> {
    let start = std::time::Instant::now();
    loop {
        match session.commit_transaction().await {
            Err(error)
                if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
                    && !error.contains_label(TRANSIENT_TRANSACTION_ERROR) =>
            {
                assert!(
                    start.elapsed() < Duration::from_secs(120),
                    "the result of a commit stays unknown: {error}"
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            answer => return answer,
        }
    }
}

/// Records what it receives. Now and then it refuses an event once, so that the side table is used too.
pub(super) struct Noting {
    pub(super) ledger: Arc<Ledger>,
    refused: Mutex<HashSet<EventId>>,
}

#[async_trait]
impl Sink for Noting {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let outcome = |outgoing: &Outgoing| {
            let id = outgoing.event.event.id.clone();
            if id
                .with_text(|id| id.bytes().map(u32::from).sum::<u32>())
                .is_multiple_of(16)
                && self.refused.lock().unwrap().insert(id.clone())
            {
                return Outcome::Failed(SinkError::new(SinkErrorKind::Busy, "not now"));
            }
            self.ledger.seen(id);
            Outcome::Delivered
        };
        batch.iter().map(outcome).collect()
    }
}

pub(super) fn noting(ledger: &Arc<Ledger>) -> Arc<Noting> {
    Arc::new(Noting {
        ledger: ledger.clone(),
        refused: Mutex::default(),
    })
}

/// A relay with its own connections, like another process.
pub(super) fn relay(url: &str, sink: &Arc<Noting>) -> EngineHandle {
    let mut options = DatabaseOptions::new(url);
    options.answer_timeout = Duration::from_secs(10);
    let sink: Arc<dyn Sink> = sink.clone();
    Engine {
        store: connect::store(&options).unwrap().store,
        sinks: BTreeMap::from([("noting".into(), sink)]),
        routes: Routes::to_one("noting").event_log(true),
        options: Options {
            lease: Duration::from_secs(2),
            retry: RetryPolicy {
                base_delay: Duration::from_millis(50),
                for_ever: true,
                ..RetryPolicy::default()
            },
            ..Options::default()
        },
    }
    .start()
}

/// Waits until every committed event was received, and checks all promises.
pub(super) async fn delivered(ledger: &Ledger) {
    wait::until_ok_within(Duration::from_secs(90), async || {
        match ledger.committed_and_seen() < ledger.committed_count() {
            true => Err(ledger.verdict()),
            false => Ok(()),
        }
    })
    .await;
    ledger.assert_whole();
}
