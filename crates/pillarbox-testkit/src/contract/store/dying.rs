//! What a store owes people about events that died.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    Settlement, StoredEvent,
    dead::{Actor, DeadFilter, DeadLetters, DeadState, FAILURES_MAX, RecoveryAction, ReplayAs},
    settlement::{Dead, DeadReason, Failed},
};

use super::{StoreHarness, scene::*};

fn person(why: Option<&str>) -> Actor {
    Actor {
        by: "Zoë".into(),
        why: why.map(str::to_owned),
    }
}

fn letters(scene: &Scene) -> Arc<dyn DeadLetters> {
    scene.harness.dead_letters().unwrap()
}

async fn die(scene: &Scene, events: &[StoredEvent], error: &str) {
    let dead = events.iter().map(|event| Dead {
        failure: failure(error),
        ..dead(event, 1)
    });
    let dead = dead.collect();
    scene
        .settle(Settlement {
            dead,
            ..Settlement::default()
        })
        .await;
}

async fn replay(scene: &Scene, filter: &DeadFilter, send: ReplayAs) -> usize {
    let actor = person(Some("mended"));
    letters(scene).replay(filter, 100, send, &actor).await.unwrap()
}

fn all() -> DeadFilter {
    DeadFilter::default()
}

pub async fn a_dead_letter_tells_everything(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let event = scene.stored("a", 1).await.remove(0);
    let begin = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
    for attempts in [1, 2] {
        scene
            .settle(Settlement {
                failed: vec![Failed {
                    failure: failure(&format!("no {attempts}")),
                    ..failed(&event, attempts, Duration::ZERO)
                }],
                ..Settlement::default()
            })
            .await;
    }
    let last = Dead {
        failure: failure("no 3: \"x\0y\""),
        ..dead(&event, 3)
    };
    let fingerprint = last.fingerprint();
    scene
        .settle(Settlement {
            dead: vec![last],
            ..Settlement::default()
        })
        .await;

    let details = letters(&scene).show(event.event.id).await.unwrap().unwrap();
    let letter = &details.letter;
    assert_eq!((letter.id, letter.seq), (event.event.id, event.seq));
    assert_eq!(
        (
            letter.topic.as_str(),
            letter.key.as_str(),
            letter.event_type.as_str()
        ),
        (event.event.topic.as_str(), "a", event.event.event_type.as_str())
    );
    assert_eq!(
        (letter.reason, letter.attempts),
        (DeadReason::MaxRetriesExceeded, 3)
    );
    assert_eq!(
        (letter.sink.as_deref(), letter.relay.as_str()),
        (Some("events"), "scene")
    );
    assert_eq!(
        (&letter.fingerprint, letter.state),
        (&fingerprint, DeadState::Open)
    );
    assert!(letter.error.starts_with("no 3"));
    assert!(letter.died_at > begin && letter.died_at < begin + jiff::SignedDuration::from_secs(3600));
    let errors: Vec<&str> = details.failures.iter().map(|f| f.error.as_str()).collect();
    assert_eq!((errors.len(), &errors[..2]), (3, &["no 1", "no 2"][..]));
    for failure in &details.failures {
        assert!(failure.at > begin && failure.at <= letter.died_at, "{failure:?}");
        assert_eq!(
            (failure.sink.as_deref(), failure.relay.as_str()),
            (Some("events"), "scene")
        );
    }
    assert!(details.recoveries.is_empty());
    assert_eq!(details.event.as_ref(), Some(&event.event));
    assert!(letters(&scene).show(uuid::Uuid::nil()).await.unwrap().is_none());
}

pub async fn only_the_latest_failures_are_kept(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let event = scene.stored("a", 1).await.remove(0);
    let tries = FAILURES_MAX as u32 + 5;
    for attempts in 1..tries {
        scene
            .settle(Settlement {
                failed: vec![Failed {
                    failure: failure(&format!("no {attempts}")),
                    ..failed(&event, attempts, Duration::ZERO)
                }],
                ..Settlement::default()
            })
            .await;
    }
    die(&scene, std::slice::from_ref(&event), &format!("no {tries}")).await;
    let failures = letters(&scene)
        .show(event.event.id)
        .await
        .unwrap()
        .unwrap()
        .failures;
    assert_eq!(failures.len(), FAILURES_MAX);
    assert_eq!(failures[0].error, "no 6");
    assert_eq!(failures[FAILURES_MAX - 1].error, format!("no {tries}"));
}

pub async fn what_died_untried_has_no_failure(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let event = scene.stored("a", 1).await.remove(0);
    let mut untried = dead(&event, 0);
    untried.tried = false;
    untried.failure.sink = None;
    scene
        .settle(Settlement {
            dead: vec![untried],
            ..Settlement::default()
        })
        .await;
    let details = letters(&scene).show(event.event.id).await.unwrap().unwrap();
    assert_eq!(
        (details.failures.len(), details.letter.sink.as_deref()),
        (0, None)
    );
}

pub async fn the_same_failure_is_one_group(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let (a, b) = (scene.stored("a", 3).await, scene.stored("b", 2).await);
    die(&scene, &a[..2], "payload of 12 bytes").await;
    die(&scene, &b[..1], "payload of 99 bytes").await;
    die(&scene, &a[2..], "refused").await;
    die(&scene, &b[1..], "refused").await;
    let groups = letters(&scene).groups(&all()).await.unwrap();
    let counts: Vec<(u64, u64, u64)> = groups.iter().map(|g| (g.count, g.keys, g.topics)).collect();
    assert_eq!(counts, [(3, 2, 1), (2, 2, 1)]);
    assert_eq!(
        (groups[0].error.as_str(), groups[1].error.as_str()),
        ("payload of 99 bytes", "refused")
    );
    assert_ne!(groups[0].fingerprint, groups[1].fingerprint);
    assert!(groups[0].first_died_at <= groups[0].last_died_at);
    assert_eq!(
        (groups[0].reason, groups[0].sink.as_deref()),
        (DeadReason::MaxRetriesExceeded, Some("events"))
    );
}

pub async fn a_filter_chooses(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    let others = scene.stored("b", 1).await;
    die(&scene, &events, "this").await;
    die(&scene, &others, "that").await;
    let topic = events[0].event.topic.as_str();
    let below = topic
        .rsplit_once('.')
        .map_or("x".to_owned(), |(start, _)| format!("{start}.>"));
    let past = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(3600);
    let fingerprint = letters(&scene).groups(&all()).await.unwrap()[0]
        .fingerprint
        .clone();
    let cases = [
        (all(), 3),
        (DeadFilter::one(events[0].event.id), 1),
        (
            DeadFilter {
                fingerprint: Some(fingerprint),
                ..all()
            },
            2,
        ),
        (
            DeadFilter {
                topic: Some(topic.into()),
                ..all()
            },
            3,
        ),
        (
            DeadFilter {
                topic: Some(below),
                ..all()
            },
            3,
        ),
        (
            DeadFilter {
                topic: Some("elsewhere.>".into()),
                ..all()
            },
            0,
        ),
        (
            DeadFilter {
                key: Some("b".into()),
                ..all()
            },
            1,
        ),
        (
            DeadFilter {
                event_type: Some("Unheard".into()),
                ..all()
            },
            0,
        ),
        (
            DeadFilter {
                reason: Some(DeadReason::PoisonMessage),
                ..all()
            },
            0,
        ),
        (
            DeadFilter {
                since: Some(past),
                ..all()
            },
            3,
        ),
        (
            DeadFilter {
                since: Some(jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3600)),
                ..all()
            },
            0,
        ),
    ];
    for (filter, count) in cases {
        let touched = letters(&scene).touched(&filter).await.unwrap();
        assert_eq!(touched.count, count, "{filter:?}");
        let listed = letters(&scene).list(&filter, None, None, 10).await.unwrap();
        assert_eq!(listed.len() as u64, count, "{filter:?}");
    }
    let touched = letters(&scene).touched(&all()).await.unwrap();
    assert_eq!((touched.keys, touched.topics), (2, vec![(topic.to_owned(), 3)]));
}

pub async fn letters_are_listed_the_latest_first(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 5).await;
    die(&scene, &events, "no").await;
    let first = letters(&scene).list(&all(), None, None, 2).await.unwrap();
    let seqs = |list: &[pillarbox_relay::dead::DeadLetter]| list.iter().map(|l| l.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&first), [events[4].seq, events[3].seq]);
    let rest = letters(&scene)
        .list(&all(), Some(DeadState::Open), Some(first[1].seq), 10)
        .await
        .unwrap();
    assert_eq!(seqs(&rest), [events[2].seq, events[1].seq, events[0].seq]);
    let done = letters(&scene)
        .list(&all(), Some(DeadState::Discarded), None, 10)
        .await
        .unwrap();
    assert!(done.is_empty());
}

pub async fn a_replayed_event_is_tried_again_in_order(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
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
        let details = letters(&scene).show(event.event.id).await.unwrap().unwrap();
        assert_eq!(details.letter.state, DeadState::Replayed);
        let done = &details.recoveries[0];
        assert_eq!(
            (done.action, done.by.as_str(), done.why.as_deref(), done.new_id),
            (RecoveryAction::Replayed, "Zoë", Some("mended"), None)
        );
    }
    let status = scene.harness.admin().status().await.unwrap();
    assert_eq!((status.dead, status.failed, status.held), (0, 0, 0));
}

pub async fn what_waits_in_the_side_table_waits_behind_a_replayed_event(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    die(&scene, &events[..1], "no").await;
    scene.park(&events[1..], LONG).await;
    assert!(scene.due().await.events.is_empty());
    replay(&scene, &all(), ReplayAs::Same).await;
    scene.until_due(&events).await;
}

pub async fn a_replayed_event_can_die_again(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 1).await;
    die(&scene, &events, "no").await;
    replay(&scene, &all(), ReplayAs::Same).await;
    die(&scene, &events, "still no").await;
    let details = letters(&scene).show(events[0].event.id).await.unwrap().unwrap();
    assert_eq!(
        (details.letter.state, details.letter.error.as_str()),
        (DeadState::Open, "still no")
    );
    assert_eq!(details.recoveries.len(), 1, "what was done is kept");
    assert_eq!(replay(&scene, &all(), ReplayAs::Same).await, 1);
}

pub async fn a_replay_as_new_is_a_linked_copy(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
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
        let details = letters(&scene).show(old.event.id).await.unwrap().unwrap();
        assert_eq!(details.letter.state, DeadState::Replayed);
        assert_eq!(details.recoveries[0].new_id, Some(copy.event.id));
        assert_eq!(scene.row(old).await.status, "dead", "the old one stays dead");
    }
}

pub async fn a_discarded_letter_is_done_with(harness: Arc<dyn StoreHarness>) {
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    die(&scene, &events, "no").await;
    let actor = person(Some("a test order"));
    let one = DeadFilter::one(events[0].event.id);
    assert_eq!(letters(&scene).discard(&one, 100, &actor).await.unwrap(), 1);
    assert_eq!(letters(&scene).discard(&one, 100, &actor).await.unwrap(), 0);
    assert_eq!(replay(&scene, &one, ReplayAs::Same).await, 0);
    assert_eq!(scene.row(&events[0]).await.status, "dead");
    assert_eq!(scene.harness.admin().status().await.unwrap().dead, 1);
    let details = letters(&scene).show(events[0].event.id).await.unwrap().unwrap();
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
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 1).await;
    die(&scene, &events, "no").await;
    let actor = person(Some("a test order"));
    assert_eq!(letters(&scene).discard(&all(), 1, &actor).await.unwrap(), 1);
    die(&scene, &events, "no, again").await;
    let letter = letters(&scene)
        .show(events[0].event.id)
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
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
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
    if harness.dead_letters().is_none() {
        return;
    }
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    die(&scene, &events, "no").await;
    let letters = letters(&scene);
    letters
        .discard(&DeadFilter::one(events[0].event.id), 1, &person(Some("x")))
        .await
        .unwrap();
    assert_eq!(letters.expire(LONG, 10).await.unwrap(), 0, "they are young");
    assert_eq!(letters.expire(Duration::ZERO, 2).await.unwrap(), 2);
    assert_eq!(letters.expire(Duration::ZERO, 2).await.unwrap(), 1);
    assert!(letters.list(&all(), None, None, 10).await.unwrap().is_empty());
    assert_eq!(scene.row(&events[1]).await.status, "dead", "the event stays dead");
}
