//! Events below the low marks are found, a missing index is reported, and documents that are far too large
//! are not kept in memory.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use pillarbox::{Event, Outbox};
use pillarbox_relay::store::{RelayId, StoreErrorKind};
use pillarbox_testkit::{contract::store::scene::page, servers};

use super::harness::MongoHarness;

const LEASE: Duration = Duration::from_secs(600);

async fn commit(harness: &MongoHarness, event: &Event) {
    let mut session = harness.session().await;
    Outbox::default().enqueue(&mut session, event).await.unwrap();
    session.commit_transaction().await.unwrap();
}

/// As after a restore: the event is older than the low marks, or the cluster's clock is behind them.
#[tokio::test]
async fn events_below_the_low_marks_are_found() {
    for ahead in [false, true] {
        let Some(server) = servers::mongo().await else {
            return;
        };
        let harness = MongoHarness::new(server).await;
        let (store, relay) = (&harness.store.store, RelayId::now_v7());
        let event = Event::to("t")
            .event_type("T")
            .aggregate("order", "a")
            .payload("{}");
        commit(&harness, &event).await;
        let held = store.take_lanes(relay, 256, LEASE).await.unwrap();
        let found = store.reader(&held).next(page(10)).await.unwrap();
        let mark = found.events[0].seq + if ahead { 1 << 50 } else { 0 };
        let lanes = harness.database().collection::<Document>("outbox_events_lanes");
        lanes
            .update_many(doc! {}, doc! { "$set": { "low_mark": mark } })
            .await
            .unwrap();
        store.check().await.unwrap();
        let census = store.heartbeat(relay, "relay", LEASE, &held).await.unwrap();
        let lane = found.events[0].lane;
        assert!(
            !census.held.contains(&lane),
            "the relay that held the lane must start over"
        );
        store.leave(relay).await.unwrap();
        let held = store.take_lanes(relay, 256, LEASE).await.unwrap();
        let found = store.reader(&held).next(page(10)).await.unwrap();
        assert_eq!(found.events.len(), 1, "ahead: {ahead}");
        assert_eq!(found.events[0].event.id, event.id);
    }
}

#[tokio::test]
async fn a_missing_index_is_reported_and_created_again() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    harness.events().drop().await.unwrap();
    let error = harness.store.store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{error}");
    assert!(error.to_string().contains("`pending`"), "{error}");
    harness.store.admin.migrate().await.unwrap();
    harness.store.store.check().await.unwrap();
}

#[tokio::test]
async fn large_headers_and_texts_are_unreadable() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let large = "x".repeat(3_000_000);
    for field in ["headers", "entity_id"] {
        let event = Event::to("t")
            .event_type("T")
            .aggregate("order", "a")
            .payload("{}");
        commit(&harness, &event).await;
        let value = match field {
            "headers" => doc! { "headers": { "h": &large } },
            _ => doc! { field: &large },
        };
        let its = doc! { "event_id": event.id.to_string() };
        harness
            .events()
            .update_one(its, doc! { "$set": value })
            .await
            .unwrap();
    }
    let store = &harness.store.store;
    let held = store.take_lanes(RelayId::now_v7(), 256, LEASE).await.unwrap();
    let found = store.reader(&held).next(page(10)).await.unwrap();
    let problems: Vec<_> = found.unreadable.iter().map(|row| row.problem.as_str()).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("the headers have about 30000"),
        "{problems:?}"
    );
    assert!(problems[1].contains("bytes together"), "{problems:?}");
    assert_eq!(found.unreadable[1].key, None);
}
