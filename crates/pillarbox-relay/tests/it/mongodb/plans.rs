//! Cost: every query goes by an index, and what was ever delivered costs nothing.

use std::time::Duration;

use futures::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use pillarbox::{Event, Limits};
use pillarbox_relay::{
    Settlement,
    dead::{Actor, DeadFilter, ReplayAs},
    store::{HeldLane, PageLimit},
};
use pillarbox_testkit::{contract::store::scene, servers};
use uuid::Uuid;

use super::harness::MongoHarness;

/// Delivered, and of old deaths that nobody looks at any more.
const HISTORY: u32 = 10_000;
const OLD_LETTERS: u32 = 3_000;
/// More than any command here has to look at, and far less than the history.
const LOOKED_AT_MAX: i64 = 1_500;
const PAGE: PageLimit = PageLimit {
    events: 200,
    bytes: 1 << 20,
    payload_bytes_max: 1 << 20,
};

/// Before everything else that is in the outbox.
fn old(n: u32) -> Timestamp {
    Timestamp {
        time: 1_700_000_000,
        increment: n,
    }
}

async fn fill(harness: &MongoHarness) {
    let event = |n: u32| {
        let event = Event::to("shop.x")
            .event_type("X")
            .aggregate("order", format!("old-{}", n % 50))
            .aggregate_version(n.into());
        let mut document = pillarbox::enqueue::mongodb_document(&event);
        document.insert("seq", old(n));
        let status = if n <= OLD_LETTERS { "dead" } else { "published" };
        document.insert("status", status);
        document
    };
    let letter = |n: u32| {
        doc! {
            "_id": old(n), "event_id": Uuid::now_v7().to_string(), "topic": "shop.x", "key": "old", "event_type": "X",
            "reason": "permanent_failure", "error": "no", "attempts": 1, "sink": "events", "relay": "r",
            "fingerprint": "f", "failures": Bson::Array(Vec::new()), "state": "discarded",
            "died_at": DateTime::from_millis(1_700_000_000_000 + i64::from(n)),
        }
    };
    let events: Vec<Document> = (1..=HISTORY).map(event).collect();
    harness.events().insert_many(events).await.unwrap();
    let letters = harness.database().collection::<Document>("outbox_events_dead");
    letters.insert_many((1..=OLD_LETTERS).map(letter)).await.unwrap();
}

/// Everything a relay and a person ask, some of it in transactions.
async fn everything(harness: &MongoHarness) {
    let open = &harness.store;
    let (store, letters) = (&open.store, &open.dead_letters);
    let relay = Uuid::now_v7();
    store.heartbeat(relay, "relay", scene::LONG, &[]).await.unwrap();
    let held = store.take_lanes(relay, 256, scene::LONG).await.unwrap();
    store.heartbeat(relay, "relay", scene::LONG, &held).await.unwrap();
    let mut reader = store.reader(&held);
    let events: Vec<Event> = (0..100)
        .map(|n| scene::event(&format!("k{}", n % 20)).aggregate_version(n))
        .collect();
    open.admin.enqueue(&Limits::default(), &events).await.unwrap();
    let page = reader.next(PAGE).await.unwrap();
    assert_eq!(page.events.len(), 100);
    let published = page.events[..50].iter().map(|event| event.seq).collect();
    settle(
        harness,
        &held,
        Settlement {
            published,
            ..Settlement::default()
        },
    )
    .await;
    reader.next(PAGE).await.unwrap();
    let mixed = Settlement {
        failed: vec![scene::failed(&page.events[50], 1, Duration::ZERO)],
        held: vec![scene::parked(&page.events[70])],
        delayed: vec![scene::delayed(&page.events[51], scene::LONG)],
        dead: page.events[72..92]
            .iter()
            .map(|event| scene::dead(event, 1))
            .collect(),
        ..Settlement::default()
    };
    settle(harness, &held, mixed).await;
    store.due(&held, None, PAGE).await.unwrap();
    store.blocked_keys(&held).await.unwrap();

    let (all, actor) = (
        DeadFilter::default(),
        Actor {
            by: "x".into(),
            why: None,
        },
    );
    let groups = letters.groups(&all).await.unwrap();
    assert_eq!(groups[0].count, 20);
    letters.list(&all, None, None, 20).await.unwrap();
    letters.show(page.events[72].event.id).await.unwrap().unwrap();
    letters.touched(&all).await.unwrap();
    let (print, since) = (&groups[0].fingerprint, groups[0].first_died_at);
    open.notices.open().await.unwrap();
    open.notices.died_since(print, since).await.unwrap();
    assert_eq!(
        open.schedules
            .candidates(&all, Duration::ZERO, 3, 5)
            .await
            .unwrap()
            .len(),
        5
    );
    assert_eq!(letters.replay(&all, 5, ReplayAs::Same, &actor).await.unwrap(), 5);
    assert_eq!(letters.replay(&all, 5, ReplayAs::New, &actor).await.unwrap(), 5);
    assert_eq!(letters.discard(&all, 5, &actor).await.unwrap(), 5);
    open.notices.outcome(print, since).await.unwrap();
    assert_eq!(letters.expire(scene::LONG, 10).await.unwrap(), 10);
    let seqs: Vec<i64> = page.events.iter().map(|event| event.seq).collect();
    open.versions.dead_among(&seqs).await.unwrap();
    let aggregates: Vec<_> = (0..50)
        .map(|n| ("order".to_owned(), format!("old-{n}")))
        .collect();
    assert!(
        open.versions
            .latest(&aggregates)
            .await
            .unwrap()
            .iter()
            .all(Option::is_some)
    );
    open.admin.status().await.unwrap();
    assert_eq!(open.admin.recent(20).await.unwrap().len(), 20);
    open.admin.low_mark().await.unwrap();
    // A second reader begins with everything that is pending.
    store.reader(&held).next(PAGE).await.unwrap();
}

async fn settle(harness: &MongoHarness, held: &[HeldLane], settlement: Settlement) {
    harness.store.store.settle(held, &settlement).await.unwrap();
}

fn number(entry: &Document, name: &str) -> i64 {
    match entry.get(name) {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        _ => 0,
    }
}

/// The server's own profiler writes down how it went about each command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_goes_by_an_index_and_the_history_costs_nothing() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    fill(&harness).await;
    let database = harness.database();
    database.run_command(doc! { "profile": 2 }).await.unwrap();
    everything(&harness).await;
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let large = [
        "outbox_events",
        "outbox_events_parked",
        "outbox_events_dead",
        "outbox_events_recoveries",
    ];
    let large = large.map(|name| format!("{}.{name}", database.name()));
    // A look into another collection counts where it was asked from.
    let looked = doc! { "ns": { "$regex": "[.]outbox_events" }, "planSummary": { "$exists": true } };
    let profile = database.collection::<Document>("system.profile");
    let entries: Vec<Document> = profile.find(looked).await.unwrap().try_collect().await.unwrap();
    assert!(
        entries.len() > 30,
        "only {} commands were written down",
        entries.len()
    );
    for entry in &entries {
        let plan = entry.get_str("planSummary").unwrap();
        let is_large = entry
            .get_str("ns")
            .is_ok_and(|name| large.iter().any(|large| large == name));
        assert!(!is_large || !plan.contains("COLLSCAN"), "{entry:#?}");
        let examined = number(entry, "keysExamined") + number(entry, "docsExamined");
        assert!(examined < LOOKED_AT_MAX, "{examined} were looked at: {entry:#?}");
    }
}
