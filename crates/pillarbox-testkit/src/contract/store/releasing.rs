//! How a key with failing events becomes free again without losing its order.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{Settlement, StoredEvent};

use super::{StoreHarness, scene::*};

fn leave(events: &[StoredEvent]) -> Settlement {
    Settlement {
        published_parked: events.iter().map(parked).collect(),
        ..Settlement::default()
    }
}

pub async fn the_key_is_free_when_the_last_one_leaves(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    let other = scene.stored("b", 1).await;
    scene.park(&events, SHORT).await;
    scene.park(&other, LONG).await;
    scene.until_due(&events).await;
    assert!(
        scene.settle(leave(&events[..2])).await.free.is_empty(),
        "one remains"
    );
    assert_eq!(scene.store.blocked_keys(&scene.held).await.unwrap().len(), 2);
    let settled = scene.settle(leave(&events[2..])).await;
    assert_eq!(settled.free, [(events[0].lane, "a".to_owned())]);
    assert_eq!(scene.store.blocked_keys(&scene.held).await.unwrap().len(), 1);
    for event in &events {
        let row = scene.row(event).await;
        assert_eq!((row.status.as_str(), row.published_at), ("published", true));
    }
    assert_eq!(
        scene.row(&events[0]).await.attempts,
        1,
        "its failure is not forgotten"
    );
}

pub async fn while_some_remain_the_first_is_due_at_once(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 4).await;
    scene.park(&events, SHORT).await;
    scene.until_due(&events).await;
    scene.settle(leave(&events[..1])).await;
    scene.until_due(&events[1..]).await;
    scene
        .settle(Settlement {
            published_parked: vec![parked(&events[1])],
            failed: vec![failed(&events[2], 1, LONG)],
            ..Settlement::default()
        })
        .await;
    assert!(
        scene.due().await.events.is_empty(),
        "the first of the rest has failed and waits"
    );
    assert_eq!(scene.row(&events[3]).await.status, "held");
}

pub async fn a_death_frees_the_key_too(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    scene.park(&events, SHORT).await;
    scene.until_due(&events).await;
    let die = |event: &StoredEvent| Settlement {
        dead: vec![dead(event, 5)],
        ..Settlement::default()
    };
    assert!(
        scene.settle(die(&events[0])).await.free.is_empty(),
        "one is held still"
    );
    scene.until_due(&events[1..]).await;
    assert_eq!(
        scene.settle(die(&events[1])).await.free,
        [(events[0].lane, "a".to_owned())]
    );
    assert!(scene.store.blocked_keys(&scene.held).await.unwrap().is_empty());
    assert!(scene.due().await.events.is_empty());
}

pub async fn an_earlier_event_that_comes_late_goes_first(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    // As if the first event's transaction committed after the second event had already failed.
    scene.park(&events[1..], LONG).await;
    assert!(scene.due().await.events.is_empty());
    scene
        .settle(Settlement {
            held: vec![parked(&events[0])],
            ..Settlement::default()
        })
        .await;
    eventually("the earlier one is due", || async {
        scene.due().await.events.first().map(|e| e.event.seq) == Some(events[0].seq)
    })
    .await;
    scene.settle(leave(&events[..1])).await;
    let blocked = scene.store.blocked_keys(&scene.held).await.unwrap();
    assert_eq!(blocked.len(), 1, "the others still wait");
}

pub async fn a_head_that_fails_again_keeps_the_others_waiting(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    scene.park(&events, Duration::from_millis(1)).await;
    scene.until_due(&events).await;
    for attempts in 2..5 {
        let settled = scene
            .settle(Settlement {
                failed: vec![failed(&events[0], attempts, SHORT)],
                held: events[1..].iter().map(parked).collect(),
                ..Settlement::default()
            })
            .await;
        assert!(settled.free.is_empty());
        assert_eq!(scene.row(&events[0]).await.attempts, attempts);
        scene.until_due(&events).await;
        assert_eq!(scene.due().await.events[0].event.attempts, attempts);
    }
}
