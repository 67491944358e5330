//! Settling: completely or not at all, idempotent, refused to a relay that lost the lane.

use std::sync::Arc;

use pillarbox_relay::{
    Settlement,
    settlement::{DeadReason, LoggedBy},
    store::{HeldLane, StoreErrorKind},
};

use super::{StoreHarness, scene::*};

pub async fn published_events_stay_published(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    let before = scene.row(&events[0]).await;
    assert_eq!(before.status, "pending");
    assert!(!before.published_at);
    scene.publish(&events[..2]).await;
    for event in &events[..2] {
        let row = scene.row(event).await;
        assert_eq!(
            (row.status.as_str(), row.attempts, row.published_at),
            ("published", 0, true)
        );
        assert_eq!((row.last_error, row.dead_reason), (None, None));
    }
    assert_eq!(scene.row(&events[2]).await.status, "pending");
    assert!(scene.due().await.events.is_empty());
}

pub async fn a_failed_event_records_its_error_and_waits(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 1).await;
    for attempts in [1, 2] {
        let failed = failed(&events[0], attempts, LONG);
        let error = failed.failure.error.clone();
        scene
            .settle(Settlement {
                failed: vec![failed],
                ..Settlement::default()
            })
            .await;
        let row = scene.row(&events[0]).await;
        assert_eq!((row.status.as_str(), row.attempts), ("failed", attempts));
        assert_eq!(row.last_error, Some(error));
        assert!(row.first_attempt_at && row.last_attempt_at && !row.published_at);
    }
    assert!(
        scene.due().await.events.is_empty(),
        "not before its delay is over"
    );
}

pub async fn a_held_event_counts_no_attempt(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    scene.park(&events, LONG).await;
    let row = scene.row(&events[1]).await;
    assert_eq!(
        (row.status.as_str(), row.attempts, row.last_error),
        ("held", 0, None)
    );
    assert!(!row.first_attempt_at && !row.last_attempt_at && !row.published_at);
}

pub async fn a_delayed_event_counts_no_attempt(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 1).await;
    scene
        .settle(Settlement {
            delayed: vec![delayed(&events[0], LONG)],
            ..Settlement::default()
        })
        .await;
    let row = scene.row(&events[0]).await;
    assert_eq!(
        (row.status.as_str(), row.attempts, row.last_error),
        ("delayed", 0, None)
    );
    assert!(!row.first_attempt_at && !row.published_at);
}

pub async fn a_dead_event_keeps_its_reason(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 5).await;
    let reasons = [
        DeadReason::MaxRetriesExceeded,
        DeadReason::PoisonMessage,
        DeadReason::SchemaValidationFailed,
        DeadReason::ProcessingTimeout,
        DeadReason::PermanentFailure,
    ];
    for (n, (event, reason)) in events.iter().zip(reasons).enumerate() {
        let attempts = u32::try_from(n).unwrap();
        let mut one = dead(event, attempts);
        one.reason = reason;
        scene
            .settle(Settlement {
                dead: vec![one],
                ..Settlement::default()
            })
            .await;
        let row = scene.row(event).await;
        assert_eq!((row.status.as_str(), row.attempts), ("dead", attempts));
        assert_eq!(row.dead_reason.as_deref(), Some(reason.as_str()));
        assert_eq!(row.last_error.as_deref(), Some("gave up"));
        assert!(!row.published_at);
    }
    assert_eq!(scene.harness.admin().status().await.unwrap().dead, 5);
}

pub async fn settling_twice_is_the_same_as_once(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let a = scene.stored("a", 3).await;
    let b = scene.stored("b", 3).await;
    let settlement = Settlement {
        published: seqs(&a[..1]),
        published_parked: vec![],
        failed: vec![failed(&a[1], 1, LONG)],
        held: vec![parked(&a[2])],
        delayed: vec![delayed(&b[0], LONG)],
        dead: vec![dead(&b[1], 3)],
        logged: vec![],
        logged_by: LoggedBy::default(),
    };
    let first = scene.settle(settlement.clone()).await;
    let mut rows = Vec::new();
    for event in a.iter().chain(&b) {
        rows.push(scene.row(event).await);
    }
    assert_eq!(scene.settle(settlement).await, first);
    for (event, row) in a.iter().chain(&b).zip(rows) {
        assert_eq!(scene.row(event).await, row);
    }
    let status = scene.harness.admin().status().await.unwrap();
    assert_eq!(
        (status.failed, status.held, status.delayed, status.dead),
        (1, 1, 1, 1)
    );
}

pub async fn later_results_do_not_change_a_published_event(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 4).await;
    scene.publish(&events).await;
    scene
        .settle(Settlement {
            failed: vec![failed(&events[0], 1, SHORT / 300)],
            held: vec![parked(&events[1])],
            delayed: vec![delayed(&events[2], SHORT / 300)],
            dead: vec![dead(&events[3], 9)],
            ..Settlement::default()
        })
        .await;
    for event in &events {
        let row = scene.row(event).await;
        assert_eq!((row.status.as_str(), row.dead_reason), ("published", None));
    }
    let status = scene.harness.admin().status().await.unwrap();
    assert_eq!(
        (status.failed, status.held, status.delayed, status.dead),
        (0, 0, 0, 0)
    );
    tokio::time::sleep(SHORT).await;
    assert!(scene.due().await.events.is_empty());
    assert!(scene.store.blocked_keys(&scene.held).await.unwrap().is_empty());
}

pub async fn a_stale_epoch_is_fenced_and_writes_nothing(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    let stale: Vec<HeldLane> = scene
        .held
        .iter()
        .map(|held| HeldLane {
            epoch: held.epoch - i64::from(held.lane == events[0].lane),
            ..*held
        })
        .collect();
    let plain = Settlement {
        published: seqs(&events),
        ..Settlement::default()
    };
    let mixed = Settlement {
        published: seqs(&events[..1]),
        failed: vec![failed(&events[1], 1, LONG)],
        ..Settlement::default()
    };
    for settlement in [plain, mixed] {
        let error = scene.store.settle(&stale, &settlement).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Fenced, "{error}");
        for event in &events {
            let row = scene.row(event).await;
            assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
        }
        assert!(scene.store.blocked_keys(&scene.held).await.unwrap().is_empty());
    }
    scene.publish(&events).await;
    let again = Settlement {
        published: seqs(&events),
        ..Settlement::default()
    };
    let error = scene.store.settle(&stale, &again).await.unwrap_err();
    assert_eq!(
        error.kind,
        StoreErrorKind::Fenced,
        "also when there is nothing left to write"
    );
}

pub async fn a_mixed_batch_is_written_whole(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut all = Vec::new();
    for n in 0..50 {
        all.push(scene.commit_key(&format!("key-{n}"), 6).await);
    }
    let read = drain(&mut scene.reader(), page(1_000)).await.events;
    assert_eq!(read.len(), 300);
    let mut settlement = Settlement::default();
    for events in &all {
        let of: Vec<_> = events
            .iter()
            .map(|written| read.iter().find(|e| e.event.id == written.id).unwrap())
            .collect();
        settlement.published.push(of[0].seq);
        settlement.dead.push(dead(of[1], 2));
        settlement.failed.push(failed(of[2], 1, LONG));
        settlement.held.push(parked(of[3]));
        settlement.delayed.push(delayed(of[4], LONG));
    }
    let settled = scene.settle(settlement).await;
    assert!(settled.free.is_empty(), "every key has a failing event");
    let status = scene.harness.admin().status().await.unwrap();
    assert_eq!(
        (
            status.pending,
            status.dead,
            status.failed,
            status.held,
            status.delayed
        ),
        (50, 50, 50, 50, 50)
    );
}
