//! Seqs that are used again are found, and rows that are far too large are not fetched.

use std::time::Duration;

use pillarbox::{Event, Outbox};
use pillarbox_relay::{
    Settlement,
    event_log::{FollowError, Follower},
    store::{HeldLane, Reader, RelayId, StoreErrorKind},
};
use pillarbox_testkit::contract::store::scene::page;

use super::harness::SqliteHarness;

const LEASE: Duration = Duration::from_secs(600);
const BACK: &str = "delete from outbox_events; delete from sqlite_sequence where name = 'outbox_events'";

async fn run(harness: &SqliteHarness, sql: &'static str) {
    sqlx::raw_sql(sql).execute(&harness.application).await.unwrap();
}

async fn commit(harness: &SqliteHarness, count: usize) -> Vec<pillarbox::EventId> {
    let events: Vec<Event> = (0..count)
        .map(|_| {
            Event::to("t")
                .event_type("T")
                .aggregate("order", "a")
                .payload("{}")
        })
        .collect();
    let mut tx = harness.application.begin_with("begin immediate").await.unwrap();
    Outbox::default().enqueue_all(&mut tx, &events).await.unwrap();
    tx.commit().await.unwrap();
    events.iter().map(|event| event.id.clone()).collect()
}

/// Delivers ten events with a relay that holds all lanes.
async fn delivered(harness: &SqliteHarness) -> (RelayId, Vec<HeldLane>, Box<dyn Reader>) {
    let (store, relay) = (&harness.store.store, RelayId::now_v7());
    commit(harness, 10).await;
    let held = store.take_lanes(relay, 256, LEASE).await.unwrap();
    let mut reader = store.reader(&held);
    let found = reader.next(page(100)).await.unwrap();
    assert_eq!((found.events.len(), found.decided), (10, 10));
    let settlement = Settlement {
        published: found.events.iter().map(|event| event.seq).collect(),
        ..Settlement::default()
    };
    store.settle(&held, &settlement).await.unwrap();
    let marked: Vec<HeldLane> = held
        .iter()
        .map(|held| HeldLane {
            low_mark: 10,
            ..*held
        })
        .collect();
    (relay, marked, reader)
}

/// Once with the sequence below the old low mark, and once above it, when the next relay starts.
#[tokio::test]
async fn events_after_the_sequence_went_back_are_found_and_counted() {
    for count in [3, 20] {
        let harness = SqliteHarness::new().await;
        let store = &harness.store.store;
        let (relay, marked, reader) = delivered(&harness).await;
        store.release_lanes(relay, &marked).await.unwrap();
        drop(reader);
        run(&harness, BACK).await;
        let events = commit(&harness, count).await;
        assert_eq!(harness.store.admin.status().await.unwrap().pending, count as u64);
        store.check().await.unwrap();
        let held = store.take_lanes(relay, 256, LEASE).await.unwrap();
        let found = store.reader(&held).next(page(100)).await.unwrap();
        let ids: Vec<_> = found.events.iter().map(|event| event.event.id.clone()).collect();
        assert_eq!(ids, events);
    }
}

/// The low marks are not recorded yet.
#[tokio::test]
async fn a_reader_notices_that_the_sequence_went_back() {
    let harness = SqliteHarness::new().await;
    let (relay, marked, mut reader) = delivered(&harness).await;
    run(&harness, "delete from outbox_events").await;
    assert!(
        reader.next(page(100)).await.unwrap().events.is_empty(),
        "deleting rows alone must change nothing"
    );
    run(&harness, BACK).await;
    commit(&harness, 3).await;
    let error = reader.next(page(100)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Fenced, "{error}");
    let census = harness
        .store
        .store
        .heartbeat(relay, "relay", LEASE, &marked)
        .await
        .unwrap();
    assert!(census.held.is_empty(), "its lanes must be read again: {census:?}");
}

#[tokio::test]
async fn large_headers_and_texts_are_not_fetched() {
    let harness = SqliteHarness::new().await;
    run(
        &harness,
        "insert into outbox_events (lane, id, topic, event_type, aggregate_type, aggregate_id, created_at, headers, payload)
         values (1, 'a', 't', 'T', 'order', 'k', 0, '{\"h\":\"' || hex(zeroblob(1500000)) || '\"}', '{}'),
                (1, 'b', hex(zeroblob(1500000)), 'T', 'order', 'k', 0, '{}', '{}')",
    )
    .await;
    let store = &harness.store.store;
    let held = store.take_lanes(RelayId::now_v7(), 256, LEASE).await.unwrap();
    let found = store.reader(&held).next(page(100)).await.unwrap();
    let problems: Vec<_> = found.unreadable.iter().map(|row| row.problem.as_str()).collect();
    assert_eq!(problems.len(), 2);
    assert!(
        problems[0].starts_with("the headers have about 3000008 bytes"),
        "{problems:?}"
    );
    assert!(problems[1].contains("3000008 bytes together"), "{problems:?}");
    assert_eq!(found.unreadable[1].topic, None);
    assert_eq!(found.unreadable[1].key.as_deref(), Some("k"));
}

#[tokio::test]
async fn positions_of_a_dropped_event_log_never_come_a_second_time() {
    let harness = SqliteHarness::new().await;
    let log = harness.store.event_log.clone().unwrap();
    let (_, held, mut reader) = delivered(&harness).await;
    log.fill(1, 10).await.unwrap();
    run(&harness, "update outbox_events_log set at = 0").await;
    assert_eq!(log.expire(Duration::from_secs(60), 100).await.unwrap(), 10);
    run(&harness, "drop table outbox_events_log").await;
    harness.store.admin.migrate().await.unwrap();

    harness.store.store.check().await.unwrap();
    commit(&harness, 2).await;
    let seqs: Vec<i64> = reader
        .next(page(10))
        .await
        .unwrap()
        .events
        .iter()
        .map(|event| event.seq)
        .collect();
    let settlement = Settlement {
        published: seqs.clone(),
        logged: seqs,
        ..Settlement::default()
    };
    harness.store.store.settle(&held, &settlement).await.unwrap();
    let positions: Vec<i64> = log
        .read(10, page(10))
        .await
        .unwrap()
        .iter()
        .map(|row| row.position())
        .collect();
    assert_eq!(positions, [11, 12]);
}

/// An earlier state of the file was restored. Readers have seen ten positions, and the log has five.
#[tokio::test]
async fn a_log_that_lost_entries_goes_on_above_all_that_were_handed_out() {
    let harness = SqliteHarness::new().await;
    let log = harness.store.event_log.clone().unwrap();
    let (_, held, mut reader) = delivered(&harness).await;
    log.fill(1, 10).await.unwrap();
    assert_eq!(log.read(0, page(100)).await.unwrap().len(), 10);
    run(
        &harness,
        "delete from outbox_events_log where position > 5;
         update sqlite_sequence set seq = 5 where name = 'outbox_events_log'",
    )
    .await;
    commit(&harness, 2).await;
    let found = reader.next(page(10)).await.unwrap().events;
    let seqs: Vec<i64> = found.iter().map(|event| event.seq).collect();
    let settlement = Settlement {
        published: seqs.clone(),
        logged: seqs,
        ..Settlement::default()
    };
    harness.store.store.settle(&held, &settlement).await.unwrap();
    let rows = log.read(5, page(10)).await.unwrap();
    assert_eq!((rows.len(), rows[0].first()), (3, 6));
    assert!(rows[1].position() > 100_000_000_000_000);
    let begun = Follower::begin(log, Some(10)).await.err();
    assert!(matches!(begun, Some(FollowError::Beyond { .. })), "{begun:?}");
}
