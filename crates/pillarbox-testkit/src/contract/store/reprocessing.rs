//! Reprocessing of dead letters.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use pillarbox_relay::dead::{Actor, DeadFilter, ReplayAs};

use super::{
    StoreHarness,
    dying::{all, die, letters, scene},
    scene::*,
    schedules,
};

fn reprocessor() -> Actor {
    Actor {
        by: "reprocessor (scene)".into(),
        why: Some("nightly".into()),
    }
}

pub async fn one_relay_runs_a_schedule(harness: Arc<dyn StoreHarness>) {
    let schedules = schedules(&*harness);
    let mut last = None;
    for _ in 0..3 {
        let (now, known) = schedules.last_run("nightly").await.unwrap();
        assert_eq!(known, last);
        assert!(now > Timestamp::now() - SignedDuration::from_secs(3_600));
        let claims = (0..4).map(|_| schedules.claim_run("nightly", last));
        let claims = futures::future::join_all(claims).await;
        let claims: Vec<bool> = claims.into_iter().map(Result::unwrap).collect();
        assert_eq!(claims.iter().filter(|claimed| **claimed).count(), 1, "{claims:?}");
        let (_, ran) = schedules.last_run("nightly").await.unwrap();
        assert!(ran.is_some_and(|ran| ran.at >= now), "{ran:?}");
        last = ran;
        // The next run is at another time, even with a coarse clock.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!schedules.claim_run("nightly", None).await.unwrap());
    assert_eq!(
        schedules.last_run("hourly").await.unwrap().1,
        None,
        "each by itself"
    );
}

pub async fn only_replayable_letters_are_candidates(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 5).await;
    die(&scene, &events[..4], "this").await;
    die(&scene, &events[4..], "that").await;
    let discarded = DeadFilter::one(events[0].event.id.clone());
    letters(&scene)
        .discard(&discarded, 1, &reprocessor())
        .await
        .unwrap();
    let now = Duration::ZERO;
    let open = ids(&events[1..]);
    assert_eq!(
        letters(&scene).replayable(&all(), now, 1, 100).await.unwrap(),
        open
    );
    assert_eq!(
        letters(&scene).replayable(&all(), now, 1, 2).await.unwrap(),
        open[..2],
        "the oldest"
    );
    assert!(
        letters(&scene)
            .replayable(&all(), LONG, 1, 100)
            .await
            .unwrap()
            .is_empty(),
        "too young"
    );
    let groups = letters(&scene).groups(&all()).await.unwrap();
    let that = DeadFilter {
        fingerprint: Some(groups[1].fingerprint.clone()),
        ..all()
    };
    assert_eq!(
        letters(&scene).replayable(&that, now, 1, 100).await.unwrap(),
        open[3..]
    );
}

pub async fn a_letter_is_a_candidate_so_many_times(harness: Arc<dyn StoreHarness>) {
    let Some(scene) = scene(harness).await else { return };
    let events = scene.stored("a", 2).await;
    die(&scene, &events, "no").await;
    let now = Duration::ZERO;
    for _ in 0..2 {
        let one = DeadFilter::one(events[0].event.id.clone());
        let replayed = letters(&scene)
            .replay(&one, 1, ReplayAs::Same, &reprocessor())
            .await;
        assert_eq!(replayed.unwrap(), 1);
        let open = letters(&scene).replayable(&all(), now, 100, 100).await.unwrap();
        assert_eq!(open, ids(&events[1..]), "what was replayed is not open");
        die(&scene, &events[..1], "still no").await;
    }
    assert_eq!(
        letters(&scene).replayable(&all(), now, 3, 100).await.unwrap(),
        ids(&events)
    );
    assert_eq!(
        letters(&scene).replayable(&all(), now, 2, 100).await.unwrap(),
        ids(&events[1..])
    );
}
