//! The log lines that docs/LOGS.md promises, and the state of a sink that has no events.

mod documented;
mod enqueued;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use pillarbox::{Event, EventId};
use pillarbox_relay::{
    Sink,
    engine::{Engine, EngineHandle, Options, SinkState},
    route::Routes,
    sink::{Capabilities, Outcome, Outgoing, SinkError, SinkErrorKind},
};
use pillarbox_testkit::{memory::MemoryStore, wait};
use serde_json::Value;

/// What the payload contains and no line may.
const PRIVATE: &str = "private-4711";

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self, message: &str) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains(PRIVATE), "a line has a payload: {text}");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"] == message).collect()
    }
}

/// Refuses each event as often as the test says, and can be away.
#[derive(Clone, Default)]
struct Refusing {
    refusals: Arc<Mutex<HashMap<EventId, (u32, SinkErrorKind)>>>,
    away: Arc<Mutex<bool>>,
}

impl Refusing {
    fn is_away(&self) -> Result<(), SinkError> {
        match *self.away.lock().unwrap() {
            true => Err(SinkError::new(SinkErrorKind::Unreachable, "nobody is there")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Sink for Refusing {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.is_away()
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let outcome = |outgoing: &Outgoing| {
            if let Err(error) = self.is_away() {
                return Outcome::Failed(error);
            }
            match self.refusals.lock().unwrap().get_mut(&outgoing.event.event.id) {
                Some((left, kind)) if *left > 0 => {
                    *left -= 1;
                    Outcome::Failed(SinkError::new(*kind, "not like this"))
                }
                _ => Outcome::Delivered,
            }
        };
        batch.iter().map(outcome).collect()
    }
}

fn start(store: &MemoryStore, sink: &Refusing) -> EngineHandle {
    let sink: Arc<dyn Sink> = Arc::new(sink.clone());
    Engine {
        store: Arc::new(store.clone()),
        sinks: BTreeMap::from([("events".into(), sink)]),
        routes: Routes::to_one("events"),
        options: Options::default(),
    }
    .start()
}

fn event(n: usize) -> Event {
    Event::to("shop.placed")
        .event_type("Placed")
        .aggregate("order", format!("o-{n}"))
        .payload(format!("{{\"note\":\"{PRIVATE}\"}}"))
}

#[tokio::test(start_paused = true)]
async fn the_lines_about_an_event_name_it_and_never_its_payload() {
    let (log, _guard) = Log::start();
    let (store, sink) = (MemoryStore::default(), Refusing::default());
    let events: Vec<Event> = (0..20).map(event).collect();
    let dead = event(20);
    for event in &events {
        let refusals = (1, SinkErrorKind::Busy);
        sink.refusals.lock().unwrap().insert(event.id.clone(), refusals);
    }
    let refusals = (1, SinkErrorKind::Invalid);
    sink.refusals.lock().unwrap().insert(dead.id.clone(), refusals);
    let mut transaction = store.begin();
    for event in events.iter().chain([&dead]) {
        transaction.enqueue(event.clone());
    }
    transaction.commit();
    let relay = start(&store, &sink);
    let settled = || relay.progress.report();
    wait::until("all are delivered", async || {
        settled().published == 20 && settled().dead == 1
    })
    .await;
    relay.stop().await.unwrap();

    let enqueued = log.lines("outbox_event_enqueued");
    assert_eq!(enqueued.len(), 21);
    assert_eq!(enqueued[0]["level"], "DEBUG");
    assert_eq!(enqueued[0]["topic"], "shop.placed");

    let failed = log.lines("outbox_publish_failed");
    assert_eq!(
        failed.len(),
        1,
        "one line for twenty failures of one fingerprint: {failed:?}"
    );
    let line = &failed[0];
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["event_id"], events[0].id.to_string());
    assert_eq!(
        (
            &line["event_type"],
            &line["aggregate_type"],
            &line["aggregate_id"]
        ),
        (&"Placed".into(), &"order".into(), &"o-0".into())
    );
    assert_eq!(
        (&line["sink"], &line["attempt"], &line["error"]),
        (&"events".into(), &1.into(), &"not like this".into())
    );
    assert!(line["retry_in_ms"].as_u64().unwrap() > 0 && line["fingerprint"].is_string());

    let succeeded = log.lines("outbox_publish_succeeded");
    assert_eq!(succeeded.len(), 20);
    assert!(
        succeeded
            .iter()
            .all(|line| line["attempt"] == 2 && line["level"] == "DEBUG")
    );

    let buried = log.lines("outbox_event_dead_lettered");
    assert_eq!(buried.len(), 1);
    let line = &buried[0];
    assert_eq!(
        (&line["level"], &line["event_id"], &line["reason"]),
        (
            &"ERROR".into(),
            &dead.id.to_string().into(),
            &"poison_message".into()
        )
    );
    assert_eq!((&line["sink"], &line["attempt"]), (&"events".into(), &1.into()));
    assert_eq!(log.lines("took over lanes")[0]["taken"], 256);
}

#[tokio::test(start_paused = true)]
async fn a_sink_without_events_is_asked_and_its_outage_is_logged_with_its_length() {
    let (log, _guard) = Log::start();
    let (store, sink) = (MemoryStore::default(), Refusing::default());
    *sink.away.lock().unwrap() = true;
    let relay = start(&store, &sink);
    let state = || relay.progress.report().sinks["events"].clone();
    assert_eq!(state(), SinkState::Untried, "nobody has asked it yet");
    wait::until("it is known to be away", async || {
        matches!(state(), SinkState::Down(_))
    })
    .await;
    assert_eq!(
        log.lines("the sink is away: pausing it; no attempt is counted")
            .len(),
        1
    );

    tokio::time::sleep(Duration::from_secs(90)).await;
    *sink.away.lock().unwrap() = false;
    wait::until("it is back", async || state() == SinkState::Up).await;
    let back = log.lines("the sink answers again; resuming");
    assert_eq!(back.len(), 1);
    let length = back[0]["outage_seconds"].as_u64().unwrap();
    assert!((90..95).contains(&length), "{back:?}");

    // It also goes away while there is nothing to send.
    *sink.away.lock().unwrap() = true;
    let gone = tokio::time::Instant::now();
    wait::until("it is known to be away again", async || {
        matches!(state(), SinkState::Down(_))
    })
    .await;
    assert!(
        gone.elapsed() < Duration::from_secs(15),
        "after {:?}",
        gone.elapsed()
    );
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_database_is_logged_once_with_its_length() {
    let (log, _guard) = Log::start();
    let (store, sink) = (MemoryStore::default(), Refusing::default());
    let relay = start(&store, &sink);
    wait::until("it works", async || !log.lines("took over lanes").is_empty()).await;
    store.set_away(true);
    let away = || relay.progress.report().store_down.is_some();
    wait::until("it is known to be away", async || away()).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    let gone = log.lines("the database is away; retrying");
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert!(gone[0]["level"] == "WARN" && gone[0]["why"].is_string());
    assert!(log.lines("the database is back").is_empty());
    store.set_away(false);
    wait::until("it is back", async || !away()).await;
    let back = log.lines("the database is back");
    assert_eq!(back.len(), 1, "{back:?}");
    assert!(
        (90..95).contains(&back[0]["outage_seconds"].as_u64().unwrap()),
        "{back:?}"
    );
    relay.stop().await.unwrap();
}

/// A constant rate limit: half of the events of each batch are refused.
#[tokio::test(start_paused = true)]
async fn a_destination_that_is_paused_again_and_again_is_logged_once_in_a_while() {
    let (log, _guard) = Log::start();
    let (store, sink) = (MemoryStore::default(), Refusing::default());
    let mut transaction = store.begin();
    for (n, event) in (0..200).map(event).enumerate() {
        let refusals = (n as u32 % 5, SinkErrorKind::Full);
        sink.refusals.lock().unwrap().insert(event.id.clone(), refusals);
        transaction.enqueue(event);
    }
    transaction.commit();
    let relay = start(&store, &sink);
    let began = tokio::time::Instant::now();
    wait::until("all are delivered", async || {
        relay.progress.report().published == 200
    })
    .await;
    let seconds = began.elapsed().as_secs() as usize;
    relay.stop().await.unwrap();
    let paused = log.lines("the destination accepts nothing: pausing it; no attempt is counted");
    let resumed = log.lines("the destination answers again; resuming");
    assert!(
        !paused.is_empty() && paused.len() <= 1 + seconds / 10,
        "{seconds} s: {paused:?}"
    );
    assert!(resumed.len() <= paused.len(), "{resumed:?}");
    assert_eq!(paused[0]["not_logged"], 0);
}
