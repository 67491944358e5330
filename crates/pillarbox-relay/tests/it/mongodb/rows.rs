//! `claim: rows`: events are locked one by one, as in services that already use such a collection.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mongodb::bson::{DateTime, Document, doc};
use pillarbox::{Event, Outbox};
use pillarbox_relay::{
    Settlement, Sink, StoredEvent,
    connect::{self, Claim, DatabaseOptions, OpenStore},
    engine::{Engine, EngineHandle, Options},
    retry::RetryPolicy,
    route::Routes,
    store::{Reader, RelayId, StoreErrorKind},
};
use pillarbox_testkit::{
    contract::store::scene::{dead, event, failed, page, parked},
    ledger::Ledger,
    servers, wait,
};

use super::{
    harness::MongoHarness,
    shop::{Noting, delivered, noting},
};

const LEASE: Duration = Duration::from_secs(5);

fn open(url: &str) -> OpenStore {
    connect::store(&DatabaseOptions {
        claim: Claim::Rows,
        ..DatabaseOptions::new(url)
    })
    .unwrap()
}

/// A relay that has sent a heartbeat.
async fn living(url: &str) -> (OpenStore, RelayId) {
    let (store, relay) = (open(url), RelayId::now_v7());
    store.store.heartbeat(relay, "one", LEASE, &[]).await.unwrap();
    assert_eq!(
        store.store.take_lanes(relay, 256, LEASE).await.unwrap().len(),
        256
    );
    (store, relay)
}

async fn commit(harness: &MongoHarness, events: &[Event]) {
    let mut session = harness.session().await;
    Outbox::default().enqueue_all(&mut session, events).await.unwrap();
    session.commit_transaction().await.unwrap();
}

async fn one(harness: &MongoHarness, event: &Event) -> Document {
    let this = doc! { "event_id": event.id.to_string() };
    harness.events().find_one(this).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_claimed_event_is_locked_for_a_minute() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let events: Vec<Event> = (0..10).map(|n| event(&format!("key-{n}"))).collect();
    commit(&harness, &events).await;
    let ((first, me), (second, _)) = (living(&harness.url).await, living(&harness.url).await);
    let mine = first.store.reader(&[]).next(page(6)).await.unwrap();
    assert_eq!(mine.events.len(), 6);
    assert!(mine.more);
    let mut reader = second.store.reader(&[]);
    let theirs = reader.next(page(100)).await.unwrap();
    assert_eq!(
        theirs.events.len(),
        4,
        "the second relay must get the other events"
    );
    let locked = one(&harness, &mine.events[0].event).await;
    assert_eq!(locked.get_str("status").unwrap(), "processing");
    assert_eq!(locked.get_str("locked_by").unwrap(), me.to_string());
    let until = locked.get_datetime("locked_until").unwrap().timestamp_millis();
    let began = locked
        .get_datetime("processing_started_at")
        .unwrap()
        .timestamp_millis();
    assert_eq!(until - began, 60_000);

    // The locks of the first relay end.
    let over =
        doc! { "$set": { "locked_until": DateTime::from_millis(DateTime::now().timestamp_millis() - 1) } };
    harness
        .events()
        .update_many(doc! { "locked_by": me.to_string() }, over)
        .await
        .unwrap();
    let mut recovered = Vec::new();
    wait::until("stale locks are recovered", async || {
        recovered.extend(reader.next(page(100)).await.unwrap().events);
        recovered.len() >= 6
    })
    .await;
    assert_eq!(recovered.len(), 6);
}

#[tokio::test]
async fn settling_a_claimed_event_records_its_result_and_unlocks_it() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let events: Vec<Event> = (0..4).map(|_| event("a")).collect();
    commit(&harness, &events).await;
    let (store, relay) = living(&harness.url).await;
    let mut reader = store.store.reader(&[]);
    let read = reader.next(page(10)).await.unwrap().events;
    assert_eq!(read.len(), 4);
    let settlement = Settlement {
        published: vec![read[0].seq],
        failed: vec![failed(&read[1], 1, Duration::from_millis(300))],
        held: vec![parked(&read[2])],
        dead: vec![dead(&read[3], 5)],
        ..Settlement::default()
    };
    let settled = store.store.settle(&[], &settlement).await.unwrap();
    assert_eq!(settled.free.len(), 1, "the held event must be free at once");
    for (event, status, attempts) in read
        .iter()
        .zip([("published", 0), ("failed", 1), ("pending", 0), ("dead", 5)])
        .map(|(e, (s, a))| (e, s, a))
    {
        let document = one(&harness, &event.event).await;
        assert_eq!(document.get_str("status").unwrap(), status);
        assert_eq!(document.get_i32("retry_count").unwrap(), attempts);
        assert!(!document.contains_key("locked_by") && !document.contains_key("locked_until"));
    }
    assert_eq!(store.admin.status().await.unwrap().dead, 1);
    let again = reader.next(page(10)).await.unwrap().events;
    assert_eq!(
        again.iter().map(|e| e.seq).collect::<Vec<_>>(),
        [read[2].seq],
        "a failed event must wait for its delay"
    );
    let retried = next(&mut *reader).await;
    assert_eq!((retried[0].seq, retried[0].attempts), (read[1].seq, 1));

    // A relay that leaves releases its locks.
    store.store.leave(relay).await.unwrap();
    assert_eq!(
        one(&harness, &read[2].event).await.get_str("status").unwrap(),
        "pending"
    );
}

#[tokio::test]
async fn an_event_with_its_own_limit_is_tried_again_where_events_never_die() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let mut limited = event("a");
    limited.retry.max_attempts = Some(2);
    commit(&harness, &[limited]).await;
    let (store, _) = living(&harness.url).await;
    let mut reader = store.store.reader(&[]);
    let mut read = reader.next(page(10)).await.unwrap().events;
    for attempts in 1..=3 {
        let settlement = Settlement {
            failed: vec![failed(&read[0], attempts, Duration::ZERO)],
            ..Settlement::default()
        };
        store.store.settle(&[], &settlement).await.unwrap();
        read = next(&mut *reader).await;
        assert_eq!(read[0].attempts, attempts, "the event must not be left behind");
    }
}

/// Waits for the next events.
async fn next(reader: &mut dyn Reader) -> Vec<StoredEvent> {
    wait::until_ok(async || {
        let page = reader.next(page(10)).await.unwrap();
        match page.events.is_empty() {
            true => Err("no event is due"),
            false => Ok(page.events),
        }
    })
    .await
}

#[tokio::test]
async fn a_claim_that_its_relay_does_not_know_expires() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let (store, relay) = (open(&harness.url), RelayId::now_v7());
    store.store.take_lanes(relay, 256, LEASE).await.unwrap();
    let (known, late) = (event("known"), event("late"));
    commit(&harness, std::slice::from_ref(&known)).await;
    let mut reader = store.store.reader(&[]);
    assert_eq!(next(&mut *reader).await[0].event.id, known.id);
    // The update of a claim arrives after its reader gave up. Both locks are about to end.
    commit(&harness, std::slice::from_ref(&late)).await;
    let soon = DateTime::from_millis(DateTime::now().timestamp_millis() + 1_000);
    let lock = doc! { "status": "processing", "locked_by": relay.to_string(), "locked_until": soon };
    harness
        .events()
        .update_many(doc! {}, doc! { "$set": lock })
        .await
        .unwrap();
    store.store.heartbeat(relay, "one", LEASE, &[]).await.unwrap();
    let until = async |event: &Event| *one(&harness, event).await.get_datetime("locked_until").unwrap();
    assert!(
        until(&known).await > soon,
        "an event in progress must stay locked"
    );
    assert_eq!(
        until(&late).await,
        soon,
        "the lock of the other event must not be renewed"
    );
    let again = next(&mut *reader).await;
    assert_eq!(
        again.iter().map(|e| e.event.id.clone()).collect::<Vec<_>>(),
        [late.id],
        "the late event must be read again"
    );
}

fn relay(url: &str, sink: &Arc<Noting>) -> EngineHandle {
    let sink: Arc<dyn Sink> = sink.clone();
    Engine {
        store: open(url).store,
        sinks: BTreeMap::from([("noting".into(), sink)]),
        routes: Routes::to_one("noting"),
        options: Options {
            retry: RetryPolicy {
                base_delay: Duration::from_millis(50),
                ..RetryPolicy::default()
            },
            ..Options::default()
        },
    }
    .start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_share_the_events_and_deliver_each() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let ledger = Arc::new(Ledger::new());
    let sink = noting(&ledger);
    let relays: Vec<EngineHandle> = (0..3).map(|_| relay(&harness.url, &sink)).collect();
    for n in 0..40 {
        // Each event has its own key, because `rows` promises no order.
        let events: Vec<Event> = (0..10).map(|k| event(&format!("key-{n}-{k}"))).collect();
        commit(&harness, &events).await;
        events
            .iter()
            .for_each(|event| ledger.committed(event.id.clone(), event.key(), 1));
    }
    delivered(&ledger).await;
    for relay in relays {
        relay.stop().await.unwrap();
    }
    let verdict = ledger.verdict();
    assert_eq!(verdict.duplicated, 0, "{verdict}");
    assert_eq!(
        harness
            .events()
            .count_documents(doc! { "status": "published" })
            .await
            .unwrap(),
        400
    );
}

#[tokio::test]
async fn databases_with_lanes_only_say_so() {
    for url in ["postgres://app@127.0.0.1/shop", "sqlite:x.db"] {
        let options = DatabaseOptions {
            claim: Claim::Rows,
            ..DatabaseOptions::new(url)
        };
        let error = connect::store(&options).err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        assert!(error.to_string().contains("MongoDB only"), "{error}");
    }
}
