//! Administration of a store, and its status.

use std::{sync::Arc, time::Duration};

use pillarbox::{Event, Limits};
use pillarbox_relay::{
    Settlement, StoredEvent,
    catalog::{self, Look},
    settlement::DeadReason,
    store::{RelayId, Trouble, TroubleKind, admin::RECENT_PAYLOAD_BYTES_MAX, sample::SAMPLE_ROWS_MAX},
};

use super::{StoreHarness, scene::*};

pub async fn migrating_again_is_harmless(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    scene.park(&events[..2], LONG).await;
    let admin = scene.harness.admin();
    let again = admin.migrate().await.unwrap();
    assert_eq!(again, admin.migrate().await.unwrap(), "nothing was left to do");
    assert_eq!(scene.row(&events[0]).await.status, "failed");
    assert_eq!(
        ids(&drain(&mut scene.reader(), page(10)).await.events),
        ids(&events[2..])
    );
    // The lanes are still held, with the same epochs.
    scene.publish(&events[2..]).await;
    assert!(!admin.migration_sql().is_empty());
}

pub async fn a_migrated_outbox_passes_its_check(harness: Arc<dyn StoreHarness>) {
    harness.store().check().await.unwrap();
    harness.another().check().await.unwrap();
}

pub async fn status_counts_each_state(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let admin = scene.harness.admin();
    let empty = admin.status().await.unwrap();
    assert_eq!(
        (empty.pending, empty.failed, empty.held, empty.delayed, empty.dead),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(empty.oldest_age, None);
    let events = scene.stored("a", 15).await;
    assert_eq!(admin.status().await.unwrap().pending, 15);
    settle_each_way(&scene, &events).await;
    let status = admin.status().await.unwrap();
    assert_eq!((status.pending, status.failed, status.held), (4, 1, 2));
    assert_eq!((status.delayed, status.dead), (3, 4));
    let age = status.oldest_age.expect("something waits");
    assert!(age < Duration::from_secs(60), "{age:?}");
}

/// Of fifteen events: 1 published, 1 failed, 2 held, 3 delayed, 4 dead, and 4 still pending.
async fn settle_each_way(scene: &Scene, events: &[StoredEvent]) {
    scene
        .settle(Settlement {
            published: seqs(&events[..1]),
            failed: vec![failed(&events[1], 1, LONG)],
            held: events[2..4].iter().map(parked).collect(),
            delayed: events[4..7].iter().map(|e| delayed(e, LONG)).collect(),
            dead: events[7..11].iter().map(|e| dead(e, 1)).collect(),
            ..Settlement::default()
        })
        .await;
}

pub async fn a_sample_counts_what_status_counts(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let admin = scene.harness.admin();
    let empty = admin.sample().await.unwrap();
    assert_eq!(
        (empty.pending, empty.oldest_age, empty.pending_estimated),
        (0, None, false)
    );
    assert!(empty.dead.is_empty(), "{empty:?}");
    let events = scene.stored("a", 15).await;
    settle_each_way(&scene, &events).await;
    scene
        .store
        .release_lanes(scene.relay, &scene.held[..56])
        .await
        .unwrap();
    let sample = admin.sample().await.unwrap();
    assert_eq!(
        (sample.pending, sample.failed, sample.held),
        (4, 1, 2),
        "{sample:?}"
    );
    assert_eq!(sample.delayed, 3, "{sample:?}");
    let dead: Vec<_> = sample.dead.into_iter().collect();
    assert_eq!(dead, [(DeadReason::MaxRetriesExceeded, 4)]);
    assert_eq!((sample.lanes_without_owner, sample.relays), (56, 1));
    let age = sample.oldest_age.expect("something waits");
    assert!(age < Duration::from_secs(60), "{age:?}");
}

pub async fn a_sample_counts_the_keys_that_are_held(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let admin = scene.harness.admin();
    assert_eq!(admin.sample().await.unwrap().keys_held, 0);
    let (a, b, c) = (
        scene.stored("a", 3).await,
        scene.stored("b", 1).await,
        scene.stored("c", 1).await,
    );
    scene
        .settle(Settlement {
            failed: vec![failed(&a[0], 1, LONG), failed(&b[0], 1, LONG)],
            held: a[1..].iter().map(parked).collect(),
            delayed: vec![delayed(&c[0], LONG)],
            ..Settlement::default()
        })
        .await;
    assert_eq!(
        admin.sample().await.unwrap().keys_held,
        2,
        "a delayed event holds nothing"
    );
}

pub async fn a_sample_of_a_large_backlog_stays_cheap_and_says_so(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let count = SAMPLE_ROWS_MAX as usize + 50;
    for part in (0..count).collect::<Vec<_>>().chunks(1_000) {
        scene.commit_key("a", part.len()).await;
    }
    let sample = scene.harness.admin().sample().await.unwrap();
    // An SQL database adds an upper bound, MongoDB stops counting. A store in memory counts all.
    let exact = sample.pending == count as u64;
    assert!(
        sample.pending >= SAMPLE_ROWS_MAX && (sample.pending_estimated || exact),
        "{sample:?}"
    );
    assert!(sample.oldest_age.is_some());
}

pub async fn status_shows_relays_and_lanes(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    scene
        .store
        .release_lanes(scene.relay, &scene.held[..56])
        .await
        .unwrap();
    let status = scene.harness.admin().status().await.unwrap();
    assert_eq!(status.lanes_held, 200);
    assert_eq!(status.relays.len(), 1);
    let relay = &status.relays[0];
    assert_eq!(
        (relay.id, relay.name.as_str(), relay.lanes),
        (scene.relay, "scene", 200)
    );
    assert!(relay.last_seen < Duration::from_secs(60), "{:?}", relay.last_seen);
}

fn trouble(why: &str) -> Trouble {
    Trouble {
        kind: TroubleKind::Destination,
        what: "events/ORDERS".into(),
        why: why.to_owned(),
        since: "2026-11-16T15:00:00Z".parse().unwrap(),
        events: None,
    }
}

pub async fn status_shows_what_a_relay_reports(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let (store, admin, other) = (&scene.store, scene.harness.admin(), RelayId::now_v7());
    store.heartbeat(other, "other", LONG, &[]).await.unwrap();
    let shown = async |relay: RelayId| {
        let status = admin.status().await.unwrap();
        let relay = status.relays.into_iter().find(|shown| shown.id == relay);
        relay.expect("it lives").troubles
    };
    assert!(shown(scene.relay).await.is_empty());

    let odd = trouble("the sink \"größe\" said:\0\n{}' \\");
    store
        .report(scene.relay, std::slice::from_ref(&odd))
        .await
        .unwrap();
    // A heartbeat does not change them.
    store.heartbeat(scene.relay, "scene", LONG, &[]).await.unwrap();
    let plain = trouble("the sink \"größe\" said:  {}' \\");
    assert_eq!(shown(scene.relay).await, [plain], "one line, whatever is in it");
    assert!(shown(other).await.is_empty());

    let many: Vec<Trouble> = (0..30)
        .map(|n| trouble(&format!("{n:02}{}", "ü".repeat(1_000))))
        .collect();
    store.report(scene.relay, &many).await.unwrap();
    let kept = shown(scene.relay).await;
    assert_eq!(kept.len(), 20);
    assert!(
        kept.iter()
            .zip(&many)
            .all(|(kept, many)| kept.why.chars().count() == 500 && many.why.starts_with(&kept.why))
    );

    store.report(scene.relay, &[]).await.unwrap();
    assert!(shown(scene.relay).await.is_empty());
    store.report(RelayId::now_v7(), &many).await.unwrap();
    assert_eq!(
        admin.status().await.unwrap().relays.len(),
        2,
        "no heartbeat, no relay"
    );
}

pub async fn the_kinds_of_the_latest_events_are_listed(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let admin = scene.harness.admin();
    assert_eq!(admin.kinds(100).await.unwrap(), Look::default());
    let of = |topic: &str, event_type: &str, n: usize| {
        Event::to(topic)
            .event_type(event_type)
            .aggregate("order", "o-1")
            .payload(format!("{{\"n\":{n}}}"))
    };
    let mut events = vec![of("a.old", "Old", 0)];
    events.extend((1..=3).map(|n| of("a.x", "X", n)));
    events.push(of("a.x", "X", 4).schema_version(2));
    events.push(of("a.y", "X", 5).stream("OWN"));
    events.push(of("a.z", "Z", 6).payload(format!("\"{}\"", "x".repeat(catalog::EXAMPLE_BYTES_MAX))));
    scene.commit(&events).await;
    let mut rolled_back = scene.harness.begin().await;
    rolled_back
        .enqueue(&Limits::default(), &[of("a.never", "Never", 7)])
        .await
        .unwrap();
    rolled_back.rollback().await;

    let look = admin.kinds(6).await.unwrap();
    assert_eq!(look.events, 6, "no further than it was asked to");
    assert!(
        look.since
            .is_some_and(|since| look.kinds.iter().all(|kind| kind.last_seen >= since))
    );
    let mut seen: Vec<_> = look
        .kinds
        .iter()
        .map(|kind| {
            assert!(kind.payload.is_none() || kind.aggregate_type == "order");
            let example = kind
                .payload
                .as_deref()
                .map(|payload| String::from_utf8_lossy(payload).into_owned());
            (
                kind.topic.as_str(),
                kind.event_type.as_str(),
                kind.schema_version,
                kind.stream.as_deref(),
                kind.count,
                example,
            )
        })
        .collect();
    assert_eq!(seen[0].4, 3, "the most frequent first");
    seen.sort();
    let example = |n: usize| Some(format!("{{\"n\":{n}}}"));
    let expected = [
        ("a.x", "X", 1, None, 3, example(3)),
        ("a.x", "X", 2, None, 1, example(4)),
        ("a.y", "X", 1, Some("OWN"), 1, example(5)),
        ("a.z", "Z", 1, None, 1, None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(admin.kinds(100).await.unwrap().kinds.len(), 5);
}

pub async fn the_latest_events_are_listed(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness.clone()).await;
    let admin = harness.admin();
    assert!(admin.recent(10).await.unwrap().is_empty());
    let events = scene.stored("a", 4).await;
    scene.publish(&events[..2]).await;
    scene
        .settle(Settlement {
            dead: vec![dead(&events[2], 1)],
            ..Settlement::default()
        })
        .await;
    let large = event("a").payload(format!("\"{}\"", "x".repeat(RECENT_PAYLOAD_BYTES_MAX)));
    scene.commit(&[large]).await;
    let recent = admin.recent(4).await.unwrap();
    let seen: Vec<_> = recent
        .iter()
        .map(|recent| (recent.event.seq, &*recent.status))
        .collect();
    let expected = [
        (events[1].seq, "published"),
        (events[2].seq, "dead"),
        (events[3].seq, "pending"),
    ];
    assert_eq!(seen, expected, "the large one is left out");
    assert_eq!(recent[2].event, events[3]);
}

pub async fn the_low_mark_is_below_pending_events(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 3).await;
    scene.publish(&events[..1]).await;
    assert!(harness.admin().low_mark().await.unwrap() < events[1].seq);
}

pub async fn a_commit_ends_the_wait_early(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let Some(waker) = scene.store.waker() else {
        return;
    };
    // By now every earlier commit has woken it.
    waker.set_asleep(true).await.unwrap();
    for _ in 0..5 {
        waker.wait(Duration::from_millis(50)).await;
    }
    let store = scene.store.clone();
    let sleeper = tokio::spawn(async move { store.waker().unwrap().wait(LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    scene.commit_key("a", 1).await;
    let woken = tokio::time::timeout(DEADLINE, sleeper).await;
    woken.expect("a commit wakes a sleeping relay").unwrap();
    waker.set_asleep(false).await.unwrap();
}

pub async fn statements_are_counted(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 5).await;
    let before = scene.store.statements();
    scene.publish(&events).await;
    assert_eq!(
        scene.store.statements() - before,
        1,
        "a plain settlement is one statement"
    );
}
