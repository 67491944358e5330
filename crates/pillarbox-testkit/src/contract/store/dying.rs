//! Dead letters.

use pillarbox::EventId;
use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    Settlement, StoredEvent,
    dead::{DeadFilter, DeadLetters, DeadState, FAILURES_MAX},
    settlement::{Dead, DeadReason, Failed},
};

use super::{StoreHarness, scene::*};

/// `None`: this store has no API for dead letters.
pub(super) async fn scene(harness: Arc<dyn StoreHarness>) -> Option<Scene> {
    harness.dead_letters()?;
    Some(Scene::new(harness).await)
}

pub(super) fn letters(scene: &Scene) -> Arc<dyn DeadLetters> {
    scene.harness.dead_letters().unwrap()
}

async fn fail(scene: &Scene, event: &StoredEvent, attempts: u32) {
    scene
        .settle(Settlement {
            failed: vec![Failed {
                failure: failure(&format!("no {attempts}")),
                ..failed(event, attempts, Duration::ZERO)
            }],
            ..Settlement::default()
        })
        .await;
}

pub(super) async fn die(scene: &Scene, events: &[StoredEvent], error: &str) {
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

pub(super) fn all() -> DeadFilter {
    DeadFilter::default()
}

pub async fn a_dead_letter_has_all_fields(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let event = scene.stored("a", 1).await.remove(0);
    let begin = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
    for attempts in [1, 2] {
        fail(&scene, &event, attempts).await;
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

    let details = letters(&scene).show(&event.event.id).await.unwrap().unwrap();
    let letter = &details.letter;
    assert_eq!(
        (letter.id.clone(), letter.seq),
        (event.event.id.clone(), event.seq)
    );
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
    assert!(
        letters(&scene)
            .show(&EventId::from("unknown"))
            .await
            .unwrap()
            .is_none()
    );
}

pub async fn only_the_latest_failures_are_kept(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let event = scene.stored("a", 1).await.remove(0);
    let tries = FAILURES_MAX as u32 + 5;
    for attempts in 1..tries {
        fail(&scene, &event, attempts).await;
    }
    die(&scene, std::slice::from_ref(&event), &format!("no {tries}")).await;
    let failures = letters(&scene)
        .show(&event.event.id)
        .await
        .unwrap()
        .unwrap()
        .failures;
    assert_eq!(failures.len(), FAILURES_MAX);
    assert_eq!(failures[0].error, "no 6");
    assert_eq!(failures[FAILURES_MAX - 1].error, format!("no {tries}"));
}

pub async fn an_event_that_died_untried_has_no_failure(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
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
    let details = letters(&scene).show(&event.event.id).await.unwrap().unwrap();
    assert_eq!(
        (details.failures.len(), details.letter.sink.as_deref()),
        (0, None)
    );
}

pub async fn the_same_failure_is_one_group(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
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
    let Some(scene) = scene(harness).await else { return };
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
        (DeadFilter::one(events[0].event.id.clone()), 1),
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
    let Some(scene) = scene(harness).await else { return };
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
