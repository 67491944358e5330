//! Lanes: one holder at a time, by the database's clock.

use std::{collections::HashSet, sync::Arc, time::Duration};

use pillarbox::lane::LANES;
use pillarbox_relay::{
    Settlement,
    store::{HeldLane, RelayId, StoreErrorKind},
};

use super::{StoreHarness, scene::*};

const ALL: usize = LANES as usize;

fn lanes(held: &[HeldLane]) -> HashSet<u8> {
    held.iter().map(|held| held.lane).collect()
}

pub async fn no_two_relays_hold_a_lane(harness: Arc<dyn StoreHarness>) {
    let (one, two) = (RelayId::now_v7(), RelayId::now_v7());
    let (first, second) = (harness.store(), harness.another());
    let mine = first.take_lanes(one, 100, LONG).await.unwrap();
    assert_eq!(mine.len(), 100, "no more than asked for");
    assert!(mine.iter().all(|held| held.low_mark == 0 && held.epoch > 0));
    let theirs = second.take_lanes(two, ALL, LONG).await.unwrap();
    assert_eq!(theirs.len(), 156);
    assert_eq!(lanes(&mine).len() + lanes(&theirs).len(), ALL);
    assert!(lanes(&mine).is_disjoint(&lanes(&theirs)));
    assert!(first.take_lanes(one, ALL, LONG).await.unwrap().is_empty());
    assert!(second.take_lanes(two, 1, LONG).await.unwrap().is_empty());
}

pub async fn relays_taking_at_the_same_time_never_overlap(harness: Arc<dyn StoreHarness>) {
    let tasks: Vec<_> = (0..6)
        .map(|n| {
            let store = if n % 2 == 0 {
                harness.store()
            } else {
                harness.another()
            };
            tokio::spawn(async move {
                let relay = RelayId::now_v7();
                let mut held = Vec::new();
                for _ in 0..10 {
                    held.extend(store.take_lanes(relay, 7, LONG).await.unwrap());
                }
                held
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    // Lanes that one relay skipped because another was reading them may be left.
    let rest = harness
        .store()
        .take_lanes(RelayId::now_v7(), ALL, LONG)
        .await
        .unwrap();
    all.extend(rest);
    assert_eq!(all.len(), ALL, "each lane was given once");
    assert_eq!(lanes(&all).len(), ALL);
}

pub async fn an_expired_lane_can_be_taken_and_its_epoch_rises(harness: Arc<dyn StoreHarness>) {
    let store = harness.store();
    let old = store.take_lanes(RelayId::now_v7(), ALL, SHORT).await.unwrap();
    assert_eq!(old.len(), ALL);
    let (taker, other) = (RelayId::now_v7(), harness.another());
    let mut new: Vec<HeldLane> = Vec::new();
    eventually("expired lanes can be taken", async || {
        new.extend(other.take_lanes(taker, ALL, LONG).await.unwrap());
        new.len() >= ALL
    })
    .await;
    for held in &new {
        let before = old.iter().find(|o| o.lane == held.lane).unwrap();
        assert!(held.epoch > before.epoch);
    }
    let error = store.settle(&old, &Settlement::default()).await;
    if let Err(error) = error {
        assert_eq!(error.kind, StoreErrorKind::Fenced);
    }
}

pub async fn a_heartbeat_renews_the_lease(harness: Arc<dyn StoreHarness>) {
    let store = harness.store();
    let relay = RelayId::now_v7();
    let held = store.take_lanes(relay, 3, SHORT).await.unwrap();
    let census = store.heartbeat(relay, "one", LONG, &held).await.unwrap();
    assert_eq!(census.held.iter().copied().collect::<HashSet<_>>(), lanes(&held));
    // The first lease has ended by now.
    tokio::time::sleep(2 * SHORT).await;
    let theirs = store.take_lanes(RelayId::now_v7(), ALL, LONG).await.unwrap();
    assert_eq!(theirs.len(), ALL - 3);
    assert!(lanes(&theirs).is_disjoint(&lanes(&held)));
}

pub async fn a_stale_heartbeat_renews_nothing(harness: Arc<dyn StoreHarness>) {
    let store = harness.store();
    let (one, two) = (RelayId::now_v7(), RelayId::now_v7());
    let old = store.take_lanes(one, 2, Duration::from_millis(1)).await.unwrap();
    let mut taken = 0;
    eventually("expired lanes can be taken", async || {
        taken += store.take_lanes(two, ALL, LONG).await.unwrap().len();
        taken >= ALL
    })
    .await;
    let marked: Vec<HeldLane> = old
        .iter()
        .map(|held| HeldLane {
            low_mark: 77,
            ..*held
        })
        .collect();
    let census = store.heartbeat(one, "one", LONG, &marked).await.unwrap();
    assert!(census.held.is_empty(), "they are lost");
    store.leave(two).await.unwrap();
    let new = store.take_lanes(one, ALL, LONG).await.unwrap();
    assert_eq!(new.len(), ALL);
    assert!(
        new.iter().all(|held| held.low_mark == 0),
        "a lost lane's mark is not written"
    );
}

pub async fn the_census_counts_and_ranks_the_living(harness: Arc<dyn StoreHarness>) {
    let (store, other) = (harness.store(), harness.another());
    let relays = [RelayId::now_v7(), RelayId::now_v7(), RelayId::now_v7()];
    for relay in relays {
        store.heartbeat(relay, "some", LONG, &[]).await.unwrap();
    }
    let mut ranks = HashSet::new();
    for relay in relays {
        let census = other.heartbeat(relay, "some", LONG, &[]).await.unwrap();
        assert_eq!(census.relays, 3);
        ranks.insert(census.rank);
    }
    assert_eq!(ranks, HashSet::from([0, 1, 2]), "a place each");
    store.heartbeat(relays[2], "some", SHORT, &[]).await.unwrap();
    eventually("the silent one is no longer counted", || {
        let store = store.clone();
        async move {
            store
                .heartbeat(relays[0], "some", LONG, &[])
                .await
                .unwrap()
                .relays
                == 2
        }
    })
    .await;
    store.leave(relays[1]).await.unwrap();
    let census = store.heartbeat(relays[0], "some", LONG, &[]).await.unwrap();
    assert_eq!((census.relays, census.rank), (1, 0));
}

pub async fn a_release_hands_the_low_mark_on(harness: Arc<dyn StoreHarness>) {
    let store = harness.store();
    let relay = RelayId::now_v7();
    let held = store.take_lanes(relay, ALL, LONG).await.unwrap();
    let marked: Vec<HeldLane> = held
        .iter()
        .take(10)
        .map(|held| HeldLane {
            low_mark: 1_000 + i64::from(held.lane),
            ..*held
        })
        .collect();
    store.release_lanes(relay, &marked).await.unwrap();
    let next = harness
        .another()
        .take_lanes(RelayId::now_v7(), ALL, LONG)
        .await
        .unwrap();
    assert_eq!(lanes(&next), lanes(&marked), "only those are free");
    for held in &next {
        assert_eq!(held.low_mark, 1_000 + i64::from(held.lane));
        assert!(held.epoch > marked.iter().find(|m| m.lane == held.lane).unwrap().epoch);
    }
}

pub async fn a_heartbeat_hands_the_low_mark_on(harness: Arc<dyn StoreHarness>) {
    let store = harness.store();
    let relay = RelayId::now_v7();
    let mut held = store.take_lanes(relay, ALL, LONG).await.unwrap();
    for one in &mut held {
        one.low_mark = 500;
    }
    store.heartbeat(relay, "one", LONG, &held).await.unwrap();
    store.leave(relay).await.unwrap();
    let next = store.take_lanes(RelayId::now_v7(), ALL, LONG).await.unwrap();
    assert_eq!(next.len(), ALL);
    assert!(next.iter().all(|held| held.low_mark == 500));
}

pub async fn a_lane_no_longer_held_is_not_released(harness: Arc<dyn StoreHarness>) {
    let store = harness.store();
    let (one, two) = (RelayId::now_v7(), RelayId::now_v7());
    let old = store.take_lanes(one, ALL, LONG).await.unwrap();
    store.release_lanes(one, &old).await.unwrap();
    let new = store.take_lanes(two, ALL, LONG).await.unwrap();
    assert_eq!(new.len(), ALL);
    let marked: Vec<HeldLane> = old.iter().map(|held| HeldLane { low_mark: 9, ..*held }).collect();
    store.release_lanes(one, &marked).await.unwrap();
    assert!(
        store.take_lanes(one, ALL, LONG).await.unwrap().is_empty(),
        "still the other's"
    );
    store.leave(two).await.unwrap();
    let again = store.take_lanes(one, ALL, LONG).await.unwrap();
    assert!(again.iter().all(|held| held.low_mark == 0));
}

pub async fn leaving_frees_everything(harness: Arc<dyn StoreHarness>) {
    let store = harness.store();
    let (one, two) = (RelayId::now_v7(), RelayId::now_v7());
    store.heartbeat(one, "one", LONG, &[]).await.unwrap();
    store.take_lanes(one, 200, LONG).await.unwrap();
    let kept = store.take_lanes(two, 6, LONG).await.unwrap();
    store.leave(one).await.unwrap();
    store.leave(one).await.unwrap();
    let free = store.take_lanes(two, ALL, LONG).await.unwrap();
    assert_eq!(free.len(), ALL - 6);
    assert!(lanes(&free).is_disjoint(&lanes(&kept)));
    assert_eq!(store.heartbeat(two, "two", LONG, &kept).await.unwrap().relays, 1);
}
