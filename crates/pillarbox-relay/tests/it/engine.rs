//! Tests of the engine that need a history made by hand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    engine::SinkState,
    engine::{Engine, EngineHandle, Options},
    route::Routes,
    store::Admin,
};
use pillarbox_testkit::{
    memory::{MemoryStore, Status},
    wait,
};
use rand::{SeedableRng, rngs::StdRng};

use crate::simulation::broker::Broker;

fn start(store: &MemoryStore, broker: &Broker) -> EngineHandle {
    let sink: Arc<dyn Sink> = Arc::new(broker.clone());
    Engine {
        store: Arc::new(store.clone()),
        sinks: BTreeMap::from([("sim".into(), sink)]),
        routes: Routes::to_one("sim"),
        options: Options::default(),
    }
    .start()
}

/// Time is paused: if nothing else can happen, an hour passes at once.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    wait::until_ok_within(Duration::from_secs(3_600), async || match holds() {
        true => Ok(()),
        false => Err(what),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_on_a_lease_that_has_run_out() {
    let store = MemoryStore::default();
    let broker = Broker::new(&mut StdRng::seed_from_u64(1));
    broker.set_away(true);
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
    let relay = start(&store, &broker);
    until("the sink is seen to be down", || {
        matches!(
            relay.progress.report().sinks.get("sim"),
            Some(SinkState::Down { .. })
        )
    })
    .await;

    // The events are in the window. The lease can't be renewed, and another relay may have taken the lanes.
    store.set_stalled(true);
    tokio::time::sleep(2 * Options::default().lease).await;
    broker.set_away(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(broker.stored(), [], "published without a lease");

    store.set_stalled(false);
    until("all are delivered", || broker.stored().len() == 10).await;
    relay.stop().await.unwrap();
    assert!(
        store
            .rows()
            .iter()
            .all(|row| row.status == Status::Published && row.stored.attempts == 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_delayed_event_comes_at_its_time_and_holds_nothing_up() {
    let store = MemoryStore::default();
    let broker = Broker::new(&mut StdRng::seed_from_u64(2));
    let later = jiff::Timestamp::now() + Duration::from_secs(300);
    let mut transaction = store.begin();
    let delayed = Event::to("t.x")
        .event_type("X")
        .aggregate("thing", "a")
        .payload("{}")
        .available_at(later);
    let at_once = Event::to("t.x")
        .event_type("X")
        .aggregate("thing", "a")
        .payload("{}");
    let (delayed_id, at_once_id) = (delayed.id.clone(), at_once.id.clone());
    transaction.enqueue(delayed);
    transaction.enqueue(at_once);
    transaction.commit();
    let relay = start(&store, &broker);
    until("the later one is there", || broker.stored().len() == 1).await;
    assert_eq!(broker.stored()[0].0, at_once_id);
    let began = tokio::time::Instant::now();
    until("the delayed one is there", || broker.stored().len() == 2).await;
    assert_eq!(broker.stored()[1].0, delayed_id);
    assert!(
        began.elapsed() > Duration::from_secs(290),
        "after {:?}",
        began.elapsed()
    );
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_engine_stops_when_its_handle_is_dropped() {
    let store = MemoryStore::default();
    let relay = start(&store, &Broker::new(&mut StdRng::seed_from_u64(1)));
    let alive = async || store.status().await.unwrap().relays.len();
    wait::until("it runs", async || alive().await > 0).await;
    let ended = tokio::time::timeout(Duration::from_secs(1), relay.finished()).await;
    assert!(ended.is_err(), "the relay ended by itself");
    // Dropping the future dropped the handle too.
    wait::until("it stops", async || alive().await == 0).await;
}
