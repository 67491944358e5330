//! Keys whose event died on a route with `after_death: block` or `latest`.

use std::{sync::Arc, time::Duration};

use pillarbox::Event;
use pillarbox_relay::{
    Settlement, StoredEvent,
    dead::{Actor, DeadFilter, DeadState, RecoveryAction, ReplayAs, SUPERSEDED},
    route::AfterDeath,
    settlement::Dead,
};

use super::{
    StoreHarness,
    dying::{all, letters, scene},
    scene::*,
};

fn actor() -> Actor {
    Actor {
        by: "Zoë".into(),
        why: Some("looked at".into()),
    }
}

/// The first event dies and the others are held behind it, in one settlement as the engine writes it.
async fn die_ahead(scene: &Scene, events: &[StoredEvent], after: AfterDeath) {
    let free = scene
        .settle(Settlement {
            dead: vec![Dead {
                after,
                ..dead(&events[0], 1)
            }],
            held: events[1..].iter().map(parked).collect(),
            ..Settlement::default()
        })
        .await
        .free;
    assert!(free.is_empty(), "its key is not free: {free:?}");
}

/// The key has something in the side table, and nothing of it is due.
async fn waits(scene: &Scene) {
    let due = scene.due().await;
    assert!(due.events.is_empty() && due.next.is_none(), "{due:?}");
    assert_eq!(scene.store.blocked_keys(&scene.held).await.unwrap().len(), 1);
}

pub async fn a_blocked_key_waits(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    die_ahead(&scene, &events, AfterDeath::Block).await;
    assert_eq!(scene.row(&events[0]).await.status, "dead");
    waits(&scene).await;
    // This holds whatever else happens to the key's order.
    let more = scene.stored("a", 1).await;
    scene
        .settle(Settlement {
            held: more.iter().map(parked).collect(),
            ..Settlement::default()
        })
        .await;
    waits(&scene).await;
    // It also holds if nothing is behind it.
    let alone = scene.stored("b", 1).await;
    die_ahead(&scene, &alone, AfterDeath::Block).await;
    assert_eq!(scene.store.blocked_keys(&scene.held).await.unwrap().len(), 2);
}

pub async fn a_blocking_event_stops_only_later_events_of_its_key(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 4).await;
    scene.park(&events[..2], SHORT).await;
    die_ahead(&scene, &events[2..], AfterDeath::Block).await;
    scene.until_due(&events[..2]).await;
    let free = scene
        .settle(Settlement {
            published_parked: events[..2].iter().map(parked).collect(),
            ..Settlement::default()
        })
        .await
        .free;
    assert!(free.is_empty(), "{free:?}");
    waits(&scene).await;
}

pub async fn a_discarded_letter_frees_its_key(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 3).await;
    die_ahead(&scene, &events, AfterDeath::Block).await;
    let letters = letters(&scene);
    let letter = letters.list(&all(), None, None, 1).await.unwrap().remove(0);
    assert!(letter.blocks_key);
    let one = DeadFilter::one(letter.id.clone());
    assert_eq!(letters.discard(&one, 10, &actor()).await.unwrap(), 1);
    scene.until_due(&events[1..]).await;
    assert_eq!(scene.row(&events[0]).await.status, "dead");
    let details = letters.show(&letter.id).await.unwrap().unwrap();
    assert!(!details.letter.blocks_key);
    // A settlement that is written again, because its answer was lost, must not block again.
    scene
        .settle(Settlement {
            dead: vec![Dead {
                after: AfterDeath::Block,
                ..dead(&events[0], 1)
            }],
            ..Settlement::default()
        })
        .await;
    scene.until_due(&events[1..]).await;
}

pub async fn a_replayed_blocking_event_goes_first(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 3).await;
    die_ahead(&scene, &events, AfterDeath::Block).await;
    let replayed = letters(&scene).replay(&all(), 10, ReplayAs::Same, &actor()).await;
    assert_eq!(replayed.unwrap(), 1);
    scene.until_due(&events).await;
    // It can die and block again.
    die_ahead(&scene, &events[..1], AfterDeath::Block).await;
    waits(&scene).await;
    let replayed = letters(&scene).replay(&all(), 10, ReplayAs::New, &actor()).await;
    assert_eq!(replayed.unwrap(), 1, "its copy comes behind the others");
    scene.until_due(&events[1..]).await;
}

pub async fn a_letter_that_blocks_its_key_does_not_expire(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 2).await;
    die_ahead(&scene, &events, AfterDeath::Block).await;
    let letters = letters(&scene);
    assert_eq!(letters.expire(Duration::ZERO, 10).await.unwrap(), 0);
    letters.discard(&all(), 10, &actor()).await.unwrap();
    assert_eq!(letters.expire(Duration::ZERO, 10).await.unwrap(), 1);
}

/// Events of one key, each with its own topic, as they are stored.
async fn of_topics(scene: &Scene, topics: &[&str]) -> Vec<StoredEvent> {
    let mut reader = scene.reader();
    drain(&mut reader, page(100)).await;
    let events: Vec<Event> = topics
        .iter()
        .map(|topic| {
            Event::to(*topic)
                .event_type("Tested")
                .aggregate("thing", "a")
                .payload("{}")
        })
        .collect();
    scene.commit(&events).await;
    drain(&mut reader, page(100)).await.events
}

pub async fn where_the_latest_is_enough_the_older_are_discarded(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = of_topics(&scene, &["s", "s", "other", "s", "s", "other"]).await;
    die_ahead(&scene, &events, AfterDeath::Latest).await;
    let left = [&events[2], &events[4], &events[5]].map(Clone::clone);
    scene.until_due(&left).await;
    for superseded in [&events[1], &events[3]] {
        let row = scene.row(superseded).await;
        assert_eq!((row.status.as_str(), row.attempts), ("dead", 0));
        assert!(row.last_error.unwrap().starts_with(SUPERSEDED));
    }
    let free = scene
        .settle(Settlement {
            published_parked: left.iter().map(parked).collect(),
            ..Settlement::default()
        })
        .await
        .free;
    assert_eq!(free.len(), 1, "the key is free in the end");
    let Some(letters) = scene.harness.dead_letters() else {
        return;
    };
    let open = letters
        .list(&all(), Some(DeadState::Open), None, 10)
        .await
        .unwrap();
    assert_eq!(
        open.iter().map(|letter| letter.seq).collect::<Vec<_>>(),
        [events[0].seq],
        "only the one that failed wants looking at"
    );
    let details = letters.show(&events[3].event.id).await.unwrap().unwrap();
    assert!(details.letter.error.contains(&events[4].event.id.to_string()));
    assert_eq!(details.recoveries[0].action, RecoveryAction::Discarded);
    assert_eq!(details.recoveries[0].by, "scene");
}

pub async fn the_latest_alone_stays(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = of_topics(&scene, &["s", "s"]).await;
    die_ahead(&scene, &events, AfterDeath::Latest).await;
    scene.until_due(&events[1..]).await;
    // Nothing is behind it, so the key is free at once.
    let lone = scene.stored("b", 1).await;
    let free = scene
        .settle(Settlement {
            dead: vec![Dead {
                after: AfterDeath::Latest,
                ..dead(&lone[0], 1)
            }],
            ..Settlement::default()
        })
        .await
        .free;
    assert_eq!(free, [(lone[0].lane, "b".to_owned())]);
}
