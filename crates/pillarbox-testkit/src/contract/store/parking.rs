//! The side table: what waits in it, and when it may be tried.

use std::{collections::HashSet, sync::Arc};

use pillarbox::lane::key_hash;
use pillarbox_relay::{
    Settlement,
    route::AfterDeath,
    settlement::{Dead, DeadReason},
    store::{HeldLane, PageLimit},
};

use super::{StoreHarness, scene::*};

pub async fn a_failed_event_is_due_after_its_delay_with_the_held_ones(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 4).await;
    let later = scene.stored("b", 1).await;
    scene.park(&later, LONG).await;
    assert!(
        scene.due().await.events.is_empty(),
        "not before its delay is over"
    );
    let start = std::time::Instant::now();
    scene.park(&events, 2 * SHORT).await;
    scene.until_due(&events).await;
    assert!(start.elapsed() >= SHORT, "it waited");
    let due = scene.due().await;
    assert_eq!(
        due.events.iter().map(|e| e.event.attempts).collect::<Vec<_>>(),
        [1, 0, 0, 0]
    );
    assert!(due.events.iter().all(|e| !e.delayed));
    assert_eq!(due.events[1].event.event, events[1].event);
}

pub async fn asking_again_returns_them_again(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    scene.park(&events, SHORT).await;
    scene.until_due(&events).await;
    assert_eq!(scene.due().await.events, scene.due().await.events);
    assert_eq!(scene.due().await.events.len(), 2);
    assert!(
        drain(&mut scene.reader(), page(10)).await.events.is_empty(),
        "readers leave them alone"
    );
}

pub async fn a_failing_key_holds_back_no_other(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let a = scene.stored("a", 2).await;
    let b = scene.stored("b", 2).await;
    scene.park(&a, LONG).await;
    scene.park(&b, SHORT).await;
    scene.until_due(&b).await;
    scene
        .settle(Settlement {
            published_parked: b.iter().map(parked).collect(),
            ..Settlement::default()
        })
        .await;
    assert!(scene.due().await.events.is_empty());
    assert_eq!(scene.row(&a[0]).await.status, "failed");
    assert_eq!(scene.row(&b[1]).await.status, "published");
}

pub async fn due_keeps_its_limits(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 5).await;
    scene.park(&events, SHORT).await;
    scene.until_due(&events).await;
    let two = scene.store.due(&scene.held, None, page(2)).await.unwrap();
    let of: Vec<_> = two.events.iter().map(|e| e.event.seq).collect();
    assert_eq!(of, seqs(&events[..2]), "the first ones, in order");
    let small = PageLimit {
        bytes: 1,
        ..page(100)
    };
    let one = scene.store.due(&scene.held, None, small).await.unwrap();
    assert_eq!(one.events.len(), 1, "one, however large");
    assert_eq!(one.events[0].event.seq, events[0].seq);
}

pub async fn pages_of_due_keys_bring_each_once(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    // The first key has more events than fit on a page: the rest of them must not hide the other keys.
    let long = scene.stored("long", 5).await;
    scene.park(&long, SHORT).await;
    let mut expected: Vec<_> = ids(&long[..2]);
    for n in 0..4 {
        let events = scene.stored(&format!("k{n}"), 1).await;
        scene.park(&events, SHORT).await;
        expected.extend(ids(&events));
    }
    // These are due at the same time.
    let mut same = scene.stored("x", 1).await;
    same.extend(scene.stored("y", 1).await);
    same.extend(scene.stored("z", 1).await);
    scene
        .settle(Settlement {
            delayed: same.iter().map(|e| delayed(e, SHORT)).collect(),
            ..Settlement::default()
        })
        .await;
    expected.extend(ids(&same));
    scene.stored("never parked", 1).await;
    eventually("all are due", || async { scene.due().await.events.len() == 12 }).await;

    let (mut after, mut seen, mut pages) = (None, Vec::new(), 0);
    loop {
        let due = scene.store.due(&scene.held, after, page(2)).await.unwrap();
        assert!(due.events.len() <= 2);
        seen.extend(due.events.iter().map(|e| e.event.event.id.clone()));
        pages += 1;
        after = due.more_after;
        if after.is_none() {
            break;
        }
        assert!(pages < 20, "places go on");
    }
    assert_eq!(seen, expected, "each once, the longest due first");
    assert_eq!(scene.due().await.more_after, None, "all of them fit on a page");
}

pub async fn a_key_that_becomes_due_later_is_behind(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let a = scene.stored("a", 1).await;
    scene.park(&a, SHORT).await;
    let b = scene.stored("b", 1).await;
    scene.park(&b, SHORT).await;
    eventually("both are due", || async { scene.due().await.events.len() == 2 }).await;
    let first = scene.store.due(&scene.held, None, page(1)).await.unwrap();
    assert_eq!(first.events[0].event.seq, a[0].seq);
    let after = first.more_after.expect("the other is due");

    // It fails again and is due later than the other one, although its seq is lower.
    scene.park(&a, SHORT).await;
    eventually("it is due again", || async {
        scene.due().await.events.len() == 2
    })
    .await;
    let rest = scene.store.due(&scene.held, Some(after), page(10)).await.unwrap();
    let of: Vec<_> = rest.events.iter().map(|e| e.event.seq).collect();
    assert_eq!(of, [b[0].seq, a[0].seq]);
    assert_eq!(rest.more_after, None);
}

pub async fn due_is_only_for_the_lanes_given(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let a = scene.stored("a", 1).await;
    scene.park(&a, SHORT).await;
    scene.until_due(&a).await;
    let (mine, others): (Vec<HeldLane>, Vec<HeldLane>) =
        scene.held.iter().partition(|held| held.lane == a[0].lane);
    let due = scene.store.due(&others, None, page(10)).await.unwrap();
    assert!(due.events.is_empty());
    assert_eq!(due.next, None, "nor do others' events say when to ask again");
    assert_eq!(
        scene.store.due(&mine, None, page(10)).await.unwrap().events.len(),
        1
    );
    assert!(scene.store.blocked_keys(&others).await.unwrap().is_empty());
    assert!(
        scene
            .store
            .due(&[], None, page(10))
            .await
            .unwrap()
            .events
            .is_empty()
    );
}

pub async fn a_delayed_event_does_not_hold_its_key(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    scene
        .settle(Settlement {
            published: seqs(&events[2..]),
            delayed: vec![delayed(&events[0], SHORT), delayed(&events[1], LONG)],
            ..Settlement::default()
        })
        .await;
    assert!(scene.store.blocked_keys(&scene.held).await.unwrap().is_empty());
    scene.until_due(&events[..1]).await;
    let due = scene.due().await;
    assert!(due.events[0].delayed);
    assert_eq!(due.events[0].event.attempts, 0);
    let settled = scene
        .settle(Settlement {
            published_parked: vec![parked(&events[0])],
            ..Settlement::default()
        })
        .await;
    assert_eq!(
        settled.free,
        [(events[0].lane, "a".to_owned())],
        "a delayed one holds nothing"
    );
    assert!(scene.due().await.events.is_empty(), "the other is not due yet");
    assert_eq!(scene.row(&events[0]).await.status, "published");
}

pub async fn a_delayed_event_can_fail_like_any_other(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    scene
        .settle(Settlement {
            delayed: vec![delayed(&events[0], SHORT), delayed(&events[1], SHORT)],
            ..Settlement::default()
        })
        .await;
    eventually("the first is due", || async {
        !scene.due().await.events.is_empty()
    })
    .await;
    scene.park(&events, SHORT).await;
    assert_eq!(scene.row(&events[0]).await.status, "failed");
    assert_eq!(scene.row(&events[1]).await.status, "held");
    assert_eq!(scene.store.blocked_keys(&scene.held).await.unwrap().len(), 1);
    scene.until_due(&events).await;
    assert!(
        scene.due().await.events.iter().all(|e| !e.delayed),
        "now it holds its key"
    );
}

pub async fn a_keys_due_events_come_together_and_in_order(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let a = scene.stored("a", 3).await;
    let b = scene.stored("b", 4).await;
    scene
        .settle(Settlement {
            delayed: a.iter().chain(&b[..2]).map(|e| delayed(e, SHORT)).collect(),
            // Due before the others, and behind two events of its key.
            failed: vec![failed(&b[2], 1, std::time::Duration::ZERO)],
            held: vec![parked(&b[3])],
            ..Settlement::default()
        })
        .await;
    tokio::time::sleep(2 * SHORT).await;
    let mut left: HashSet<_> = ids(&a).into_iter().chain(ids(&b)).collect();
    while !left.is_empty() {
        let due = scene.due().await.events;
        assert!(!due.is_empty(), "{} are due still", left.len());
        let groups: Vec<_> = due
            .chunk_by(|x, y| x.event.event.key() == y.event.event.key())
            .collect();
        let keys: HashSet<_> = groups.iter().map(|group| group[0].event.event.key()).collect();
        assert_eq!(keys.len(), groups.len(), "grouped by key");
        for group in &groups {
            assert!(group.is_sorted_by_key(|e| e.event.seq));
        }
        let published_parked = due.iter().map(|e| parked(&e.event)).collect();
        scene
            .settle(Settlement {
                published_parked,
                ..Settlement::default()
            })
            .await;
        for event in &due {
            assert!(left.remove(&event.event.event.id), "once settled it is gone");
        }
    }
    assert!(scene.due().await.events.is_empty());
}

pub async fn due_returns_the_time_until_the_next_one(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    assert_eq!(scene.due().await.next, None);
    let a = scene.stored("a", 2).await;
    scene.park(&a, LONG).await;
    let next = scene.due().await.next.expect("one waits");
    assert!(next <= LONG && next > LONG / 2, "{next:?}");
    let b = scene.stored("b", 1).await;
    scene
        .settle(Settlement {
            delayed: vec![delayed(&b[0], LONG / 4)],
            ..Settlement::default()
        })
        .await;
    let next = scene.due().await.next.expect("two wait");
    assert!(next <= LONG / 4, "{next:?}");
}

pub async fn a_corrupt_parked_row_is_unreadable_and_frees_its_key(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    scene.park(&events, SHORT).await;
    if !scene.harness.corrupt(events[0].event.id.clone()).await {
        return;
    }
    eventually("the row is due", || async {
        !scene.due().await.unreadable.is_empty()
    })
    .await;
    let due = scene.due().await;
    assert_eq!(due.unreadable.len(), 1);
    assert_eq!(
        (due.unreadable[0].seq, due.unreadable[0].lane),
        (events[0].seq, events[0].lane)
    );
    scene
        .settle(Settlement {
            dead: vec![Dead {
                seq: events[0].seq,
                subject: None,
                lane: events[0].lane,
                key: None,
                after: AfterDeath::Skip,
                attempts: 1,
                reason: DeadReason::PoisonMessage,
                failure: failure(&due.unreadable[0].problem),
                tried: false,
                logged: false,
            }],
            ..Settlement::default()
        })
        .await;
    assert_eq!(scene.row(&events[0]).await.status, "dead");
    scene.until_due(&events[1..]).await;
}

pub async fn a_key_with_failing_or_held_events_is_blocked(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut expected = HashSet::new();
    for key in ["a", "größe", "order-1"] {
        let events = scene.stored(key, 3).await;
        scene.park(&events, LONG).await;
        expected.insert((events[0].lane, key_hash(key)));
    }
    let others = scene.stored("other", 3).await;
    scene
        .settle(Settlement {
            published: seqs(&others[..1]),
            dead: vec![dead(&others[1], 1)],
            delayed: vec![delayed(&others[2], LONG)],
            ..Settlement::default()
        })
        .await;
    let blocked = scene.store.blocked_keys(&scene.held).await.unwrap();
    assert_eq!(blocked.len(), 3, "each once");
    assert_eq!(blocked.into_iter().collect::<HashSet<_>>(), expected);
}
