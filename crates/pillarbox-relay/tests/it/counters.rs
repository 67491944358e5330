//! What is counted when events fail and die.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    engine::{Engine, EngineHandle, Options, Progress},
    metrics::{Exporter, PREFIX},
    retry::RetryPolicy,
    route::{AfterDeath, Pattern, Route, Routes},
    scale::ScaleLimits,
    sink::{Capabilities, Outcome, Outgoing, SinkError, SinkErrorKind},
};
use pillarbox_testkit::{memory::MemoryStore, wait};

/// Answers every event with the same error.
struct Always(SinkErrorKind);

#[async_trait]
impl Sink for Always {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let error = SinkError::new(self.0, "not like this");
        vec![Outcome::Failed(error); batch.len()]
    }
}

fn start(store: &MemoryStore, kind: SinkErrorKind, destination_outage_max: Option<Duration>) -> EngineHandle {
    let sink: Arc<dyn Sink> = Arc::new(Always(kind));
    Engine {
        store: Arc::new(store.clone()),
        sinks: BTreeMap::from([("events".into(), sink)]),
        routes: Routes::new(vec![Route {
            topic: Pattern::new("shop.>").unwrap(),
            sink: "events".into(),
            stream: None,
            envelope: pillarbox_relay::envelope::Envelope::default(),
            after_death: AfterDeath::default(),
            event_log: false,
        }]),
        options: Options {
            retry: RetryPolicy {
                attempts_max: 3,
                ..RetryPolicy::default()
            },
            destination_outage_max,
            ..Options::default()
        },
    }
    .start()
}

fn enqueue(store: &MemoryStore, topic: &str, events: usize) {
    let mut transaction = store.begin();
    for n in 0..events {
        let event = Event::to(topic).event_type("Placed");
        transaction.enqueue(event.aggregate("order", n.to_string()).payload("{}"));
    }
    transaction.commit();
}

async fn until_dead(progress: &Progress, events: u64) {
    wait::until_ok_within(Duration::from_secs(3_600), async || {
        let report = progress.report();
        match report.dead {
            dead if dead == events => Ok(()),
            _ => Err(format!("{report:?}")),
        }
    })
    .await;
}

fn failures_of_the_type(progress: &Arc<Progress>) -> Option<String> {
    let text = Exporter::new(PREFIX, progress.clone(), ScaleLimits::default()).text();
    let mut lines = text.lines();
    lines.find_map(|line| {
        let count = line.strip_prefix(r#"outbox_event_type_failures_total{event_type="Placed"} "#)?;
        Some(count.to_owned())
    })
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_kills_its_event_is_a_failed_attempt() {
    let store = MemoryStore::default();
    enqueue(&store, "shop.placed", 50);
    let relay = start(&store, SinkErrorKind::Refused, None);
    until_dead(&relay.progress, 50).await;
    let report = relay.progress.report();
    assert_eq!((report.published, report.failed), (0, 50));
    assert_eq!(failures_of_the_type(&relay.progress).unwrap(), "50");
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_counted_once() {
    let store = MemoryStore::default();
    enqueue(&store, "shop.placed", 10);
    let relay = start(&store, SinkErrorKind::Busy, None);
    until_dead(&relay.progress, 10).await;
    assert_eq!(relay.progress.report().failed, 30);
    assert_eq!(failures_of_the_type(&relay.progress).unwrap(), "30");
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_never_sent_has_no_failed_attempt_but_its_type_has_a_failure() {
    let store = MemoryStore::default();
    enqueue(&store, "elsewhere", 10);
    let relay = start(&store, SinkErrorKind::Busy, None);
    until_dead(&relay.progress, 10).await;
    assert_eq!(relay.progress.report().failed, 0);
    assert_eq!(failures_of_the_type(&relay.progress).unwrap(), "10");
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_destination_is_no_failed_attempt_and_giving_it_up_is() {
    let store = MemoryStore::default();
    enqueue(&store, "shop.placed", 20);
    let outage_max = Some(Duration::from_secs(60));
    let relay = start(&store, SinkErrorKind::Full, outage_max);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let report = relay.progress.report();
    assert!(report.settled >= 19, "they wait in the side table: {report:?}");
    assert_eq!((report.failed, report.dead), (0, 0));
    assert_eq!(failures_of_the_type(&relay.progress), None);
    until_dead(&relay.progress, 20).await;
    assert_eq!(relay.progress.report().failed, 20);
    assert_eq!(failures_of_the_type(&relay.progress).unwrap(), "20");
    relay.stop().await.unwrap();
}
