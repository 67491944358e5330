//! Replaying and discarding dead letters.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    Settlement,
    dead::{Actor, DeadFilter, DeadState, RecoveryAction, ReplayAs},
};

use super::{
    StoreHarness,
    dying::{all, die, letters, scene},
    scene::*,
};

fn person(why: Option<&str>) -> Actor {
    Actor {
        by: "Zoë".into(),
        why: why.map(str::to_owned),
    }
}

async fn replay(scene: &Scene, filter: &DeadFilter, send: ReplayAs) -> usize {
    let actor = person(Some("mended"));
    letters(scene).replay(filter, 100, send, &actor).await.unwrap()
}

pub async fn a_replayed_event_is_tried_again_in_order(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 3).await;
    die(&scene, &events, "no").await;
    assert_eq!(replay(&scene, &all(), ReplayAs::Same).await, 3);
    assert_eq!(replay(&scene, &all(), ReplayAs::Same).await, 0, "none is open");

    scene.until_due(&events).await;
    let due = scene.due().await.events;
    assert!(
        due.iter().all(|due| due.event.attempts == 0 && !due.delayed),
        "nothing counted"
    );
    let blocked = scene.store.blocked_keys(&scene.held).await.unwrap();
    assert_eq!(blocked.len(), 1, "later ones of the key wait for them");
    let free = scene
        .settle(Settlement {
            published_parked: events.iter().map(parked).collect(),
            ..Settlement::default()
        })
        .await
        .free;
    assert_eq!(free, [(events[0].lane, "a".to_owned())]);
    for event in &events {
        assert_eq!(scene.row(event).await.status, "published");
        let details = letters(&scene).show(&event.event.id).await.unwrap().unwrap();
        assert_eq!(details.letter.state, DeadState::Replayed);
        let done = &details.recoveries[0];
        assert_eq!(
            (
                done.action,
                done.by.as_str(),
                done.why.as_deref(),
                done.new_id.clone()
            ),
            (RecoveryAction::Replayed, "Zoë", Some("mended"), None)
        );
    }
    let status = scene.harness.admin().status().await.unwrap();
    assert_eq!((status.dead, status.failed, status.held), (0, 0, 0));
}

pub async fn parked_events_wait_behind_a_replayed_event(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 3).await;
    die(&scene, &events[..1], "no").await;
    scene.park(&events[1..], LONG).await;
    assert!(scene.due().await.events.is_empty());
    replay(&scene, &all(), ReplayAs::Same).await;
    scene.until_due(&events).await;
}

pub async fn a_replayed_event_can_die_again(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 1).await;
    die(&scene, &events, "no").await;
    replay(&scene, &all(), ReplayAs::Same).await;
    die(&scene, &events, "still no").await;
    let details = letters(&scene).show(&events[0].event.id).await.unwrap().unwrap();
    assert_eq!(
        (details.letter.state, details.letter.error.as_str()),
        (DeadState::Open, "still no")
    );
    assert_eq!(details.recoveries.len(), 1, "what was done is kept");
    assert_eq!(replay(&scene, &all(), ReplayAs::Same).await, 1);
}

pub async fn a_replay_as_new_is_a_linked_copy(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 2).await;
    die(&scene, &events, "no").await;
    let mut reader = scene.reader();
    drain(&mut reader, page(100)).await;
    assert_eq!(replay(&scene, &all(), ReplayAs::New).await, 2);
    let copies = drain(&mut reader, page(100)).await.events;
    assert_eq!(copies.len(), 2);
    for (copy, old) in copies.iter().zip(&events) {
        assert_ne!(copy.event.id, old.event.id);
        assert_eq!(copy.event.headers["replay-of"], old.event.id.to_string());
        assert_eq!(
            (&copy.event.payload, copy.event.key()),
            (&old.event.payload, old.event.key())
        );
        assert_eq!((copy.attempts, copy.lane), (0, old.lane));
        let details = letters(&scene).show(&old.event.id).await.unwrap().unwrap();
        assert_eq!(details.letter.state, DeadState::Replayed);
        assert_eq!(details.recoveries[0].new_id, Some(copy.event.id.clone()));
        assert_eq!(scene.row(old).await.status, "dead", "the old one stays dead");
    }
}

pub async fn a_discarded_letter_is_done_with(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 2).await;
    die(&scene, &events, "no").await;
    let actor = person(Some("a test order"));
    let one = DeadFilter::one(events[0].event.id.clone());
    assert_eq!(letters(&scene).discard(&one, 100, &actor).await.unwrap(), 1);
    assert_eq!(letters(&scene).discard(&one, 100, &actor).await.unwrap(), 0);
    assert_eq!(replay(&scene, &one, ReplayAs::Same).await, 0);
    assert_eq!(scene.row(&events[0]).await.status, "dead");
    assert_eq!(scene.harness.admin().status().await.unwrap().dead, 1);
    let details = letters(&scene).show(&events[0].event.id).await.unwrap().unwrap();
    assert_eq!(details.letter.state, DeadState::Discarded);
    let done = &details.recoveries[0];
    assert_eq!(
        (done.action, done.why.as_deref()),
        (RecoveryAction::Discarded, Some("a test order"))
    );
    let groups = letters(&scene).groups(&all()).await.unwrap();
    assert_eq!(
        (groups.len(), groups[0].count),
        (1, 1),
        "only open ones are shown"
    );
}

pub async fn settling_a_death_again_opens_no_letter(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 1).await;
    die(&scene, &events, "no").await;
    let actor = person(Some("a test order"));
    assert_eq!(letters(&scene).discard(&all(), 1, &actor).await.unwrap(), 1);
    die(&scene, &events, "no, again").await;
    let letter = letters(&scene)
        .show(&events[0].event.id)
        .await
        .unwrap()
        .unwrap()
        .letter;
    assert_eq!(
        (letter.state, letter.error.as_str()),
        (DeadState::Discarded, "no")
    );
}

pub async fn an_action_takes_the_oldest_up_to_its_limit(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 5).await;
    die(&scene, &events, "no").await;
    let (all, actor) = (all(), person(None));
    let replayed = letters(&scene)
        .replay(&all, 2, ReplayAs::Same, &actor)
        .await
        .unwrap();
    assert_eq!(replayed, 2);
    scene.until_due(&events[..2]).await;
    assert_eq!(letters(&scene).discard(&all, 2, &actor).await.unwrap(), 2);
    let open = letters(&scene)
        .list(&all, Some(DeadState::Open), None, 10)
        .await
        .unwrap();
    assert_eq!(open.iter().map(|l| l.seq).collect::<Vec<_>>(), [events[4].seq]);
}

pub async fn old_letters_expire(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 3).await;
    die(&scene, &events, "no").await;
    let letters = letters(&scene);
    letters
        .discard(
            &DeadFilter::one(events[0].event.id.clone()),
            1,
            &person(Some("x")),
        )
        .await
        .unwrap();
    assert_eq!(letters.expire(LONG, 10).await.unwrap(), 0, "they are young");
    assert_eq!(letters.expire(Duration::ZERO, 2).await.unwrap(), 2);
    assert_eq!(letters.expire(Duration::ZERO, 2).await.unwrap(), 1);
    assert!(letters.list(&all(), None, None, 10).await.unwrap().is_empty());
    assert_eq!(scene.row(&events[1]).await.status, "dead", "the event stays dead");
}
