//! Cost: every query uses an index, and delivered events cost nothing.

use std::time::Duration;

use futures::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use pillarbox::{Event, Limits};
use pillarbox_relay::{
    Settlement,
    dead::{Actor, DeadFilter, ReplayAs},
    event_log::{COUNTED_MAX, LogFilter},
    settlement::Dead,
    store::{HeldLane, PageLimit},
};
use pillarbox_testkit::{contract::store::scene, servers};
use uuid::Uuid;

use super::harness::MongoHarness;

/// Settled events. The first `OLD_LETTERS` of them are dead, and their letters are discarded.
const HISTORY: u32 = 10_000;
const OLD_LETTERS: u32 = 3_000;
/// More than any command here has to examine, and far less than the history.
const LOOKED_AT_MAX: i64 = 1_500;
const PAGE: PageLimit = PageLimit {
    events: 200,
    bytes: 1 << 20,
    payload_bytes_max: 1 << 20,
};

/// A seq before all other events of the outbox.
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
    let entry = |n: u32| {
        doc! {
            "_id": i64::from(n), "status": "published", "at": DateTime::from_millis(1_700_000_000_000 + i64::from(n)),
            "seq": old(n), "event_id": Uuid::now_v7().to_string(), "entity_id": format!("old-{}", n % 50),
        }
    };
    let log = harness.database().collection::<Document>("outbox_events_log");
    log.insert_many((1..=HISTORY).map(entry)).await.unwrap();
    let meta = harness.database().collection::<Document>("outbox_events_meta");
    let position = doc! { "_id": "log_position", "value": i64::from(HISTORY) };
    meta.insert_one(position).await.unwrap();
    let events: Vec<Document> = (1..=HISTORY).map(event).collect();
    harness.events().insert_many(events).await.unwrap();
    let letters = harness.database().collection::<Document>("outbox_events_dead");
    letters.insert_many((1..=OLD_LETTERS).map(letter)).await.unwrap();
}

/// Every command that a relay or a person sends, some of them in transactions.
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
    let published: Vec<i64> = page.events[..50].iter().map(|event| event.seq).collect();
    settle(
        harness,
        &held,
        Settlement {
            logged: published.clone(),
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
            .map(|event| Dead {
                logged: true,
                ..scene::dead(event, 1)
            })
            .collect(),
        ..Settlement::default()
    };
    settle(harness, &held, mixed).await;
    read_the_log(harness, &page.events[0].event).await;
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
    letters.show(&page.events[72].event.id).await.unwrap().unwrap();
    letters.touched(&all).await.unwrap();
    let (print, since) = (&groups[0].fingerprint, groups[0].first_died_at);
    letters.causes().await.unwrap();
    let records = open.notices();
    records.told().await.unwrap();
    records.claim("log", scene::LONG).await.unwrap();
    assert_eq!(
        letters
            .replayable(&all, Duration::ZERO, 3, 5)
            .await
            .unwrap()
            .len(),
        5
    );
    assert_eq!(letters.replay(&all, 5, ReplayAs::Same, &actor).await.unwrap(), 5);
    assert_eq!(letters.replay(&all, 5, ReplayAs::New, &actor).await.unwrap(), 5);
    assert_eq!(letters.discard(&all, 5, &actor).await.unwrap(), 5);
    letters.outcome(print, since).await.unwrap();
    assert_eq!(letters.expire(scene::LONG, 10).await.unwrap(), 10);
    let seqs: Vec<i64> = page.events.iter().map(|event| event.seq).collect();
    let versions = open.require_versions().unwrap();
    versions.dead_among(&seqs).await.unwrap();
    let aggregates: Vec<_> = (0..50)
        .map(|n| ("order".to_owned(), format!("old-{n}")))
        .collect();
    assert!(
        versions
            .latest(&aggregates)
            .await
            .unwrap()
            .iter()
            .all(Option::is_some)
    );
    open.admin.status().await.unwrap();
    assert_eq!(open.admin.recent(20).await.unwrap().len(), 20);
    open.admin.low_mark().await.unwrap();
    // A second reader starts with all pending events.
    store.reader(&held).next(PAGE).await.unwrap();
}

async fn read_the_log(harness: &MongoHarness, event: &Event) {
    let log = harness.store.event_log.clone().unwrap();
    let bounds = log.bounds().await.unwrap();
    assert_eq!(bounds.last, i64::from(HISTORY) + 70);
    log.read(bounds.last - 50, PAGE).await.unwrap();
    log.fill(bounds.last, bounds.last + 1).await.unwrap();
    assert_eq!(log.life(&event.id).await.unwrap().unwrap().entries.len(), 1);
    let since = jiff::Timestamp::now() - Duration::from_secs(600);
    let sets: [fn(&mut LogFilter); 5] = [
        |_| {},
        |filter| filter.aggregate_id = Some("k1".into()),
        |filter| filter.project_id = Some("none".into()),
        |filter| filter.user_id = Some("none".into()),
        |filter| filter.correlation_id = Some("none".into()),
    ];
    for set in sets {
        let mut filter = LogFilter::default();
        set(&mut filter);
        log.list(&filter, None, 20).await.unwrap();
        filter.since = Some(since);
        log.list(&filter, None, 20).await.unwrap();
        log.counts(&filter, COUNTED_MAX).await.unwrap();
    }
    assert_eq!(log.expire(Duration::from_secs(600), 100).await.unwrap(), 100);
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

/// The server's profiler records how it ran each command.
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
        "outbox_events_log",
    ];
    let large = large.map(|name| format!("{}.{name}", database.name()));
    // A lookup in another collection is recorded at the collection of the command.
    let looked = doc! { "ns": { "$regex": "[.]outbox_events" }, "planSummary": { "$exists": true } };
    let profile = database.collection::<Document>("system.profile");
    let entries: Vec<Document> = profile.find(looked).await.unwrap().try_collect().await.unwrap();
    assert!(
        entries.len() > 30,
        "the profiler recorded only {} commands",
        entries.len()
    );
    for entry in &entries {
        let plan = entry.get_str("planSummary").unwrap();
        let is_large = entry
            .get_str("ns")
            .is_ok_and(|name| large.iter().any(|large| large == name));
        assert!(!is_large || !plan.contains("COLLSCAN"), "{entry:#?}");
        let examined = number(entry, "keysExamined") + number(entry, "docsExamined");
        assert!(
            examined < LOOKED_AT_MAX,
            "{examined} documents or keys were examined: {entry:#?}"
        );
    }
}
