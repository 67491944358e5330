//! Discovery: every committed event, once and in order; never an uncommitted one.

use std::{collections::HashSet, sync::Arc};

use pillarbox::{Event, Limits};
use pillarbox_relay::{Settlement, store::HeldLane};

use super::{StoreHarness, scene::*};
use crate::wait;

pub async fn a_committed_event_is_read_once(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut reader = scene.reader();
    assert!(drain(&mut reader, page(10)).await.events.is_empty());
    let first = scene.commit_key("a", 1).await;
    let read = drain(&mut reader, page(10)).await;
    assert_eq!(ids(&read.events), written(&first));
    assert_eq!(read.events[0].attempts, 0);
    let second = scene.commit_key("b", 2).await;
    assert_eq!(ids(&drain(&mut reader, page(10)).await.events), written(&second));
    assert!(drain(&mut reader, page(10)).await.events.is_empty());
}

pub async fn a_rolled_back_event_is_never_read(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut reader = scene.reader();
    let mut tx = scene.harness.begin().await;
    tx.enqueue(&Limits::default(), &[event("a")]).await.unwrap();
    assert!(
        drain(&mut reader, page(10)).await.events.is_empty(),
        "it is not committed"
    );
    tx.rollback().await;
    let kept = scene.commit_key("b", 1).await;
    assert_eq!(ids(&drain(&mut reader, page(10)).await.events), written(&kept));
    let mut fresh = scene.reader();
    assert_eq!(ids(&drain(&mut fresh, page(10)).await.events), written(&kept));
}

pub async fn a_late_commit_is_not_missed(harness: Arc<dyn StoreHarness>) {
    if !harness.concurrent_transactions() {
        return;
    }
    let scene = Scene::new(harness).await;
    let mut reader = scene.reader();
    let limits = Limits::default();
    let late = [event("late"), event("late")];
    let mut open = scene.harness.begin().await;
    open.enqueue(&limits, &late[..1]).await.unwrap();
    let mut decided = 0;
    for n in 0..5 {
        let early = scene.commit_key("early", 3).await;
        let read = drain(&mut reader, page(2)).await;
        assert_eq!(ids(&read.events), written(&early), "round {n}");
        decided = read.decided;
    }
    open.enqueue(&limits, &late[1..]).await.unwrap();
    open.commit().await;
    let read = drain(&mut reader, page(10)).await;
    assert_eq!(ids(&read.events), written(&late));
    assert!(
        read.events.iter().all(|e| e.seq > decided),
        "{decided} was decided, yet an event came below it: {:?}",
        seqs(&read.events)
    );
    assert!(drain(&mut reader, page(10)).await.events.is_empty());
}

pub async fn a_rollback_between_commits_leaves_no_gap(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut reader = scene.reader();
    let mut expected = Vec::new();
    for n in 0..10 {
        let mut tx = scene.harness.begin().await;
        let one = event(&format!("key-{n}"));
        tx.enqueue(&Limits::default(), std::slice::from_ref(&one))
            .await
            .unwrap();
        if n % 3 == 1 {
            tx.rollback().await;
        } else {
            tx.commit().await;
            expected.push(one.id);
        }
    }
    assert_eq!(ids(&drain(&mut reader, page(3)).await.events), expected);
}

pub async fn pages_of_any_size_keep_the_order_of_seq(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut expected = Vec::new();
    for n in 0..6 {
        let events: Vec<Event> = (0..5).map(|k| event(&format!("key-{}", (n + k) % 4))).collect();
        scene.commit(&events).await;
        expected.extend(written(&events));
    }
    for size in [1, 2, 7, 30, 100] {
        let mut reader = scene.reader();
        let read = drain(&mut reader, page(size)).await;
        assert_eq!(ids(&read.events), expected, "pages of {size}");
        assert!(read.events.is_sorted_by_key(|e| e.seq), "pages of {size}");
        assert!(read.pages >= 30 / size, "pages of {size}");
    }
}

pub async fn a_new_reader_returns_only_pending_events(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 6).await;
    scene
        .settle(Settlement {
            published: vec![events[0].seq],
            dead: vec![dead(&events[1], 1)],
            failed: vec![failed(&events[2], 1, LONG)],
            held: vec![parked(&events[3])],
            delayed: vec![delayed(&events[4], LONG)],
            ..Settlement::default()
        })
        .await;
    let mut reader = scene.reader();
    assert_eq!(ids(&drain(&mut reader, page(10)).await.events), ids(&events[5..]));
}

pub async fn a_reader_starts_at_the_low_mark(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 4).await;
    let marked: Vec<HeldLane> = scene
        .held
        .iter()
        .map(|held| HeldLane {
            low_mark: events[1].seq,
            ..*held
        })
        .collect();
    let mut reader = scene.store.reader(&marked);
    assert_eq!(ids(&drain(&mut reader, page(10)).await.events), ids(&events[2..]));

    // Each lane has its own mark: the mark of another lane must not hide this lane's events, or return old
    // ones again.
    let mut mixed = scene.held.clone();
    for held in &mut mixed {
        held.low_mark = if held.lane == events[0].lane {
            events[2].seq
        } else {
            0
        };
    }
    let mut reader = scene.store.reader(&mixed);
    assert_eq!(ids(&drain(&mut reader, page(10)).await.events), ids(&events[3..]));
}

pub async fn a_reader_returns_only_its_lanes(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events: Vec<Event> = (0..64).map(|n| event(&format!("key-{n}"))).collect();
    scene.commit(&events).await;
    let (even, odd): (Vec<HeldLane>, Vec<HeldLane>) = scene.held.iter().partition(|held| held.lane % 2 == 0);
    let mut seen = HashSet::new();
    for (lanes, remainder) in [(even, 0), (odd, 1)] {
        let mut reader = scene.store.reader(&lanes);
        let read = drain(&mut reader, page(5)).await;
        assert!(!read.events.is_empty(), "64 keys spread over odd and even lanes");
        assert!(read.events.iter().all(|e| e.lane % 2 == remainder));
        seen.extend(ids(&read.events));
    }
    assert_eq!(seen.len(), events.len());
    let mut none = scene.store.reader(&[]);
    assert!(drain(&mut none, page(5)).await.events.is_empty());
}

pub async fn every_event_belongs_to_its_keys_lane(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let by_aggregate = event("the-key");
    let by_partition = Event::to("other.topic")
        .event_type("Other")
        .aggregate("gadget", "7")
        .partition_key("the-key");
    scene.commit(&[by_aggregate, by_partition]).await;
    let read = drain(&mut scene.reader(), page(10)).await.events;
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].lane, read[1].lane, "one key, one lane");
}

pub async fn decided_reaches_the_last_event(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut reader = scene.reader();
    let events: Vec<Event> = (0..9).map(|n| event(&format!("key-{n}"))).collect();
    scene.commit(&events).await;
    let mut read = Vec::new();
    wait::until_ok(async || {
        let page = reader.next(page(2)).await.unwrap();
        let decided = page.decided;
        read.extend(page.events);
        let last = read.last().map_or(0, |e| e.seq);
        if read.len() < 9 {
            assert!(
                decided <= last,
                "{decided} is decided, {last} was the last one read"
            );
        }
        match read.len() == 9 && decided >= last {
            true => Ok(()),
            false => Err(format!(
                "decided stays at {decided} with {} of 9 read",
                read.len()
            )),
        }
    })
    .await;
    assert_eq!(ids(&read), written(&events));
}

/// A reader that reads until there is no more has everything that was committed before it requested the last
/// page.
pub async fn events_committed_between_two_pages_are_read(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut reader = scene.reader();
    drain(&mut reader, page(2)).await;
    // Two full pages: only an empty page tells the reader that its snapshot is read completely.
    let mut events = scene.commit_key("a", 4).await;
    let mut read = reader.next(page(2)).await.unwrap().events;
    assert_eq!(read.len(), 2);
    events.extend(scene.commit_key("b", 1).await);
    read.extend(drain(&mut reader, page(2)).await.events);
    assert_eq!(ids(&read), written(&events));
}

pub async fn readers_beside_busy_writers_miss_nothing(harness: Arc<dyn StoreHarness>) {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 25;
    let scene = Scene::new(harness).await;
    let mut reader = scene.reader();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let harness = scene.harness.clone();
            tokio::spawn(async move {
                let mut committed = Vec::new();
                for n in 0..ROUNDS {
                    let events = [event(&format!("w-{writer}")), event(&format!("w-{writer}"))];
                    let mut tx = harness.begin().await;
                    tx.enqueue(&Limits::default(), &events).await.unwrap();
                    tokio::task::yield_now().await;
                    if n % 5 == 4 {
                        tx.rollback().await;
                    } else {
                        tx.commit().await;
                        committed.extend(events.map(|e| e.id));
                    }
                }
                committed
            })
        })
        .collect();
    let mut read = Vec::new();
    while writers.iter().any(|writer| !writer.is_finished()) {
        let page = reader.next(page(7)).await.unwrap();
        read.extend(page.events);
        tokio::task::yield_now().await;
    }
    read.extend(drain(&mut reader, page(7)).await.events);
    for (n, writer) in writers.into_iter().enumerate() {
        let key = format!("w-{n}");
        let of_key: Vec<_> = read
            .iter()
            .filter(|e| e.event.key() == key)
            .map(|e| e.event.id.clone())
            .collect();
        assert_eq!(
            of_key,
            writer.await.unwrap(),
            "each once and in order, of key {key}"
        );
    }
}
