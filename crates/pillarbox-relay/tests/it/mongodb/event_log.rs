//! The event log when relays die, lose positions, or meet an outbox that was restored.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::TryStreamExt;
use mongodb::{
    Collection,
    bson::{Bson, DateTime, Document, doc},
};
use pillarbox_relay::{
    Settlement, StoredEvent,
    connect::{self, Claim, DatabaseOptions},
    event_log::{EventLog, FollowError, Follower, LogEntry, LogRow, Stretch},
    store::{PageLimit, RelayId, StoreErrorKind},
};
use pillarbox_testkit::{
    contract::store::{
        logging::{entries, entry_ids, rows},
        scene::{LONG, Scene, dead, drain, event, ids, page, seqs},
    },
    servers, wait,
};
use uuid::Uuid;

use super::harness::MongoHarness;

fn log_of(harness: &MongoHarness) -> Arc<dyn EventLog> {
    harness.store.event_log.clone().unwrap()
}

fn documents(harness: &MongoHarness) -> Collection<Document> {
    harness.database().collection("outbox_events_log")
}

fn logged(events: &[StoredEvent]) -> Settlement {
    Settlement {
        published: seqs(events),
        logged: seqs(events),
        ..Settlement::default()
    }
}

/// The log from its beginning to its end, as a reader gets it.
pub(super) async fn followed(log: &Arc<dyn EventLog>) -> Vec<LogEntry> {
    let end = log.bounds().await.unwrap().last;
    let mut follower = Follower::begin(log.clone(), Some(0)).await.unwrap();
    let mut read = Vec::new();
    wait::until("the reader reaches the end of the log", async || {
        read.extend(follower.next(page(1_000)).await.unwrap().entries);
        follower.position() >= end
    })
    .await;
    read
}

/// Every event once, those of each key in the order in which they were written.
pub(super) async fn assert_every_event_is_logged(harness: &MongoHarness) {
    let mut written: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let events = harness.events();
    let mut events = events.find(doc! {}).sort(doc! { "seq": 1 }).await.unwrap();
    while let Some(event) = events.try_next().await.unwrap() {
        let text = |name: &str| event.get_str(name).unwrap().to_owned();
        written
            .entry(text("entity_id"))
            .or_default()
            .push(text("event_id"));
    }
    let mut logged: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in followed(&log_of(harness)).await {
        let event = entry.event;
        logged
            .entry(event.aggregate_id)
            .or_default()
            .push(event.id.to_string());
    }
    assert_eq!(logged, written);
}

#[tokio::test]
async fn entries_of_a_relay_that_died_before_it_marked_the_events_are_not_repeated() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 5).await;
    scene.settle(logged(&events[..2])).await;
    let unmarked = doc! { "$set": { "status": "pending" } };
    harness.events().update_many(doc! {}, unmarked).await.unwrap();
    scene.settle(logged(&events)).await;
    assert_eq!(entry_ids(&entries(&*log).await), ids(&events));
    assert_eq!(entry_ids(&followed(&log).await), ids(&events));
    for event in &events {
        assert_eq!(scene.row(event).await.status, "published");
    }
}

#[tokio::test]
async fn events_whose_entries_cannot_be_written_are_settled_later_with_them() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 2).await;
    let refuse = async |validator: Document| {
        let command = doc! { "collMod": "outbox_events_log", "validator": validator };
        harness.database().run_command(command).await.unwrap();
    };
    let mut death = dead(&events[1], 1);
    death.logged = true;
    let mixed = Settlement {
        dead: vec![death],
        ..Settlement::default()
    };
    for (event, settlement) in events.iter().zip([logged(&events[..1]), mixed]) {
        refuse(doc! { "never": true }).await;
        let refused = scene.store.settle(&scene.held, &settlement).await;
        assert_eq!(refused.unwrap_err().kind, StoreErrorKind::Refused);
        assert_eq!(scene.row(event).await.status, "pending");
        refuse(doc! {}).await;
        scene.settle(settlement).await;
    }
    assert_eq!(entry_ids(&followed(&log).await), ids(&events));
}

#[tokio::test]
async fn an_entry_whose_position_was_made_void_takes_those_behind_it_along() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 4).await;
    // The second and the third of the positions that are taken next.
    log.fill(2, 3).await.unwrap();
    scene.settle(logged(&events)).await;
    assert_eq!(entry_ids(&entries(&*log).await), ids(&events));
    let died = scene.stored("b", 1).await;
    let next = log.bounds().await.unwrap().last + 1;
    log.fill(next, next + 1).await.unwrap();
    let mut death = dead(&died[0], 1);
    death.logged = true;
    scene
        .settle(Settlement {
            dead: vec![death],
            ..Settlement::default()
        })
        .await;
    let last = rows(&*log).await.pop().unwrap();
    assert!(
        matches!(&last, LogRow::Entry(entry) if entry.event.id == died[0].event.id),
        "{last:?}"
    );
}

#[tokio::test]
async fn a_log_goes_on_behind_its_latest_entry_after_the_outbox_was_restored() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 40).await;
    scene.settle(logged(&events[..30])).await;
    let meta: Collection<Document> = harness.database().collection("outbox_events_meta");
    let earlier = doc! { "$set": { "value": 2_i64 } };
    meta.update_one(doc! { "_id": "log_position" }, earlier)
        .await
        .unwrap();
    for event in events[30..].chunks(1) {
        scene.settle(logged(event)).await;
    }
    assert_eq!(entry_ids(&entries(&*log).await), ids(&events));
}

/// Readers have seen 30 positions, and the outbox was restored from a copy with 20.
#[tokio::test]
async fn a_log_that_lost_entries_goes_on_above_all_that_were_handed_out() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 40).await;
    scene.settle(logged(&events[..30])).await;
    assert_eq!(entries(&*log).await.len(), 30);
    let lost = doc! { "_id": { "$gt": 20_i64 } };
    documents(&harness).delete_many(lost).await.unwrap();
    let meta: Collection<Document> = harness.database().collection("outbox_events_meta");
    let earlier = doc! { "$set": { "value": 20_i64 } };
    meta.update_one(doc! { "_id": "log_position" }, earlier)
        .await
        .unwrap();
    for event in events[30..].chunks(1) {
        scene.settle(logged(event)).await;
    }
    let read = followed(&log).await;
    let expected: Vec<_> = events[..20].iter().chain(&events[30..]).cloned().collect();
    assert_eq!(entry_ids(&read), ids(&expected));
    assert!(read[20].position > 100_000_000_000_000);
    for lost in [25, 30] {
        let begun = Follower::begin(log.clone(), Some(lost)).await.err();
        assert!(
            matches!(begun, Some(FollowError::Beyond { .. })),
            "{lost}: {begun:?}"
        );
    }
}

#[tokio::test]
async fn a_position_in_an_open_transaction_is_decided_by_its_end() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let log = log_of(&harness);
    for (position, commits) in [(1_i64, true), (2, false)] {
        let mut session = harness.session().await;
        let entry = doc! { "_id": position, "status": "dead", "at": DateTime::now() };
        let insert = documents(&harness).insert_one(entry).session(&mut session).await;
        insert.unwrap();
        let fill = tokio::spawn({
            let log = log.clone();
            async move { log.fill(position, position).await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!fill.is_finished());
        match commits {
            true => session.commit_transaction().await.unwrap(),
            false => session.abort_transaction().await.unwrap(),
        }
        fill.await.unwrap().unwrap();
    }
    let rows = rows(&*log).await;
    assert!(
        matches!(
            rows[..],
            [LogRow::Entry(_), LogRow::Void(Stretch { first: 2, last: 2 })]
        ),
        "{rows:?}"
    );
}

/// The lease is over, and another relay has the lanes. What it appended stays, in its order.
#[tokio::test]
async fn a_relay_that_lost_its_lanes_appends_nothing_behind_the_new_holder() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 3).await;
    let over = doc! { "$set": { "lease_until": DateTime::from_millis(0) } };
    let lanes: Collection<Document> = harness.database().collection("outbox_events_lanes");
    lanes.update_many(doc! {}, over).await.unwrap();
    let other = connect::store(&DatabaseOptions::new(&harness.url)).unwrap().store;
    let held = other.take_lanes(RelayId::now_v7(), 256, LONG).await.unwrap();
    assert_eq!(held.len(), 256);
    other.settle(&held, &logged(&events[..2])).await.unwrap();
    // A process that does not know about its lease asks the lanes.
    let late = connect::store(&DatabaseOptions::new(&harness.url)).unwrap().store;
    let error = late.settle(&scene.held, &logged(&events)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Fenced);
    assert_eq!(entry_ids(&entries(&*log).await), ids(&events[..2]));
}

#[tokio::test]
async fn large_events_are_appended_in_parts_and_read_in_parts() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let large = format!("{{\"filler\":\"{}\"}}", "x".repeat(900_000));
    let events: Vec<_> = (0..12).map(|_| event("a").payload(large.clone())).collect();
    scene.commit(&events).await;
    let stored = drain(&mut scene.reader(), page(100)).await.events;
    let before = scene.store.statements();
    scene.settle(logged(&stored)).await;
    let commands = scene.store.statements() - before;
    assert!(commands > 4, "more than one part: {commands} commands");
    let limit = PageLimit {
        bytes: 2_000_000,
        ..page(100)
    };
    let read = log.read(0, limit).await.unwrap();
    assert_eq!(read.len(), 2);
    let list = log.list(&Default::default(), None, 100).await.unwrap();
    assert!(list.entries.len() < 12 && list.next.is_some());
    assert_eq!(entry_ids(&followed(&log).await), ids(&stored));
}

#[tokio::test]
async fn an_unreadable_event_has_an_entry_for_its_death() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let mut document = pillarbox::enqueue::mongodb_document(&event("a"));
    document.insert("event_id", "not a uuid");
    document.insert("topic", "t".repeat(1_000));
    document.insert("stream", 7);
    document.insert("headers", doc! { "correlation-id": ["c"] });
    harness.events().insert_one(document).await.unwrap();
    let unreadable = scene.reader().next(page(10)).await.unwrap().unreadable.remove(0);
    let mut readable = scene.stored("b", 1).await.remove(0);
    readable.seq = unreadable.seq;
    readable.lane = unreadable.lane;
    let mut death = dead(&readable, 0);
    death.logged = true;
    scene
        .settle(Settlement {
            dead: vec![death],
            ..Settlement::default()
        })
        .await;
    let entry = entries(&*log).await.remove(0);
    assert_eq!(entry.event.topic.len(), 255);
    assert_eq!(entry.event.stream, None);
    let life = log.life(&entry.event.id).await.unwrap().unwrap();
    assert_eq!(life.row.unwrap().status, "dead");
    assert_eq!(life.entries, [entry]);
}

#[tokio::test]
async fn a_payload_that_a_service_wrote_as_a_document_is_read_from_the_log_as_json() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let scene = Scene::new(harness.clone()).await;
    let mut document = pillarbox::enqueue::mongodb_document(&event("a"));
    let id = Uuid::now_v7().to_string().to_uppercase();
    document.insert("event_id", &id);
    document.insert("payload", doc! { "user": { "name": "Ada" } });
    document.insert("headers", doc! { "a.b": "dotted", "correlation-id": 7 });
    document.insert("user_id", Bson::Null);
    harness.events().insert_one(document).await.unwrap();
    let stored = drain(&mut scene.reader(), page(100)).await.events;
    scene.settle(logged(&stored)).await;
    let entry = entries(&*log).await.remove(0);
    assert_eq!(entry.event, stored[0].event);
    let found = documents(&harness).find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(found.get_str("event_id").unwrap(), id);
    assert_eq!(found.get_str("correlation_id").unwrap(), "7");
    assert!(
        !found.contains_key("user_id") && !found.contains_key("lane"),
        "{found}"
    );
}

#[tokio::test]
async fn relays_that_claim_rows_append_as_well() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = Arc::new(MongoHarness::new(server).await);
    let log = log_of(&harness);
    let rows = connect::store(&DatabaseOptions {
        claim: Claim::Rows,
        ..DatabaseOptions::new(&harness.url)
    })
    .unwrap();
    let relay = RelayId::now_v7();
    rows.store.heartbeat(relay, "one", LONG, &[]).await.unwrap();
    let events: Vec<_> = (0..3).map(|_| event("a")).collect();
    rows.admin.enqueue(&Default::default(), &events).await.unwrap();
    let claimed = rows.store.reader(&[]).next(page(10)).await.unwrap().events;
    assert_eq!(claimed.len(), 3);
    let mut death = dead(&claimed[2], 1);
    death.logged = true;
    let mixed = Settlement {
        published: seqs(&claimed[1..2]),
        logged: seqs(&claimed[1..2]),
        dead: vec![death],
        ..Settlement::default()
    };
    for settlement in [logged(&claimed[..1]), mixed] {
        for _ in 0..2 {
            rows.store.settle(&[], &settlement).await.unwrap();
        }
    }
    let found = entries(&*log).await;
    assert_eq!(entry_ids(&found), ids(&claimed));
    assert_eq!(found[2].outcome.status(), "dead");
}
