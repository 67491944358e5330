//! The event log: lists, counts, and what expires.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use pillarbox::Event;
use pillarbox_relay::{
    Settlement, StoredEvent,
    event_log::{COUNTED_MAX, FollowError, Follower, LogFilter},
};

use super::{
    StoreHarness,
    logging::{entries, entry_ids, log_of},
    scene::*,
};

fn chat(project: &str, user: &str, session: &str, topic: &str) -> Event {
    Event::to(topic)
        .event_type(if topic.ends_with("created") {
            "Created"
        } else {
            "Edited"
        })
        .aggregate("session", session)
        .project_id(project)
        .user_id(user)
        .header("correlation-id", format!("c-{session}"))
        .payload("{}")
}

/// Delivers these events, the last one of them dead.
async fn told(scene: &Scene, events: &[Event]) -> Vec<StoredEvent> {
    scene.commit(events).await;
    let stored = drain(&mut scene.reader(), page(100)).await.events;
    let (last, others) = stored.split_last().unwrap();
    scene.publish_logged(others).await;
    let mut died = dead(last, 2);
    died.logged = true;
    scene
        .settle(Settlement {
            dead: vec![died],
            ..Settlement::default()
        })
        .await;
    stored
}

fn filter(set: impl FnOnce(&mut LogFilter)) -> LogFilter {
    let mut filter = LogFilter::default();
    set(&mut filter);
    filter
}

pub async fn a_log_filter_chooses(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let begin = Timestamp::now();
    let events = [
        chat("p1", "u1", "s1", "chat.message.created"),
        chat("p1", "u2", "s1", "chat.message.edited"),
        chat("p2", "u1", "s2", "chat.room.created"),
        chat("p2", "u2", "s3", "order.created"),
    ];
    told(&scene, &events).await;
    let hour = Duration::from_secs(3_600);
    for (name, filter, expected) in [
        ("all", LogFilter::default(), vec![3, 2, 1, 0]),
        (
            "topic",
            filter(|f| f.topic = Some("order.created".into())),
            vec![3],
        ),
        (
            "pattern",
            filter(|f| f.topic = Some("chat.>".into())),
            vec![2, 1, 0],
        ),
        (
            "inner pattern",
            filter(|f| f.topic = Some("chat.*.created".into())),
            vec![2, 0],
        ),
        (
            "type",
            filter(|f| f.event_type = Some("Created".into())),
            vec![3, 2, 0],
        ),
        (
            "aggregate",
            filter(|f| f.aggregate_id = Some("s1".into())),
            vec![1, 0],
        ),
        (
            "aggregate type",
            filter(|f| f.aggregate_type = Some("other".into())),
            vec![],
        ),
        (
            "project",
            filter(|f| f.project_id = Some("p2".into())),
            vec![3, 2],
        ),
        ("user", filter(|f| f.user_id = Some("u2".into())), vec![3, 1]),
        (
            "correlation",
            filter(|f| f.correlation_id = Some("c-s2".into())),
            vec![2],
        ),
        ("status", filter(|f| f.status = Some("dead".into())), vec![3]),
        (
            "since",
            filter(|f| f.since = Some(begin - hour)),
            vec![3, 2, 1, 0],
        ),
        ("since later", filter(|f| f.since = Some(begin + hour)), vec![]),
        (
            "until",
            filter(|f| f.until = Some(begin + hour)),
            vec![3, 2, 1, 0],
        ),
        ("until earlier", filter(|f| f.until = Some(begin - hour)), vec![]),
        (
            "several",
            filter(|f| {
                f.project_id = Some("p1".into());
                f.user_id = Some("u1".into());
            }),
            vec![0],
        ),
    ] {
        let list = log.list(&filter, None, 10).await.unwrap();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|n: usize| events[n].id.clone())
            .collect();
        assert_eq!(entry_ids(&list.entries), expected, "{name}");
        assert_eq!(list.next, None, "{name}");
        assert!(list.entries.iter().all(|entry| filter.matches(entry)), "{name}");
    }
}

pub async fn pages_of_a_list_stay_as_they_are(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 9).await;
    scene.publish_logged(&events[..7]).await;
    for filter in [
        LogFilter::default(),
        filter(|f| f.aggregate_id = Some("a".into())),
        filter(|f| f.topic = Some("contract.*".into())),
    ] {
        let first = log.list(&filter, None, 3).await.unwrap();
        assert_eq!(first.entries.len(), 3);
        // New entries do not move the pages.
        scene.publish_logged(&events[7..]).await;
        let mut all = first.entries;
        let mut next = first.next;
        while let Some(before) = next {
            let page = log.list(&filter, Some(before), 3).await.unwrap();
            all.extend(page.entries);
            next = page.next;
        }
        let positions: Vec<_> = all.iter().map(|entry| entry.position).collect();
        let top = positions[0];
        assert_eq!(positions, (1..=top).rev().collect::<Vec<_>>());
    }
}

pub async fn a_page_of_the_history_is_bounded_in_bytes(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let large = format!("{{\"filler\":\"{}\"}}", "x".repeat(900_000));
    let events: Vec<_> = (0..12).map(|_| event("a").payload(large.clone())).collect();
    scene.commit(&events).await;
    let stored = drain(&mut scene.reader(), page(100)).await.events;
    scene.publish_logged(&stored).await;
    for filter in [
        LogFilter::default(),
        filter(|f| f.aggregate_id = Some("a".into())),
        filter(|f| f.topic = Some("contract.*".into())),
    ] {
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let list = log.list(&filter, next, 100).await.unwrap();
            let bytes: usize = list.entries.iter().map(|entry| entry.event.payload.len()).sum();
            assert!(bytes < 9_000_000, "{bytes} bytes in a page");
            all.extend(list.entries);
            next = list.next;
            if next.is_none() {
                break;
            }
        }
        all.reverse();
        assert_eq!(entry_ids(&all), ids(&stored));
    }
}

/// As after a restore: nothing is at most of the positions.
pub async fn positions_that_were_passed_over_are_no_work(harness: Arc<dyn StoreHarness>) {
    const FAR: i64 = 170_000_000_000_000;
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    scene.publish_logged(&events).await;
    for _ in 0..2 {
        log.skip(4, FAR).await.unwrap();
    }
    log.fill(FAR + 1, FAR + 2).await.unwrap();
    let places = log.places(2, 10).await.unwrap();
    let places: Vec<_> = places
        .iter()
        .map(|place| (place.positions.first, place.positions.last))
        .collect();
    assert_eq!(places, [(3, 3), (4, FAR), (FAR + 1, FAR + 1), (FAR + 2, FAR + 2)]);
    let mut follower = Follower::begin(log.clone(), Some(0)).await.unwrap();
    let mut read = Vec::new();
    for _ in 0..3 {
        read.extend(follower.next(page(10)).await.unwrap().entries);
    }
    assert_eq!((entry_ids(&read), follower.position()), (ids(&events), FAR + 2));
    for lost in [4, 1_000, FAR - 1] {
        let begun = Follower::begin(log.clone(), Some(lost)).await.err();
        assert!(
            matches!(begun, Some(FollowError::Beyond { .. })),
            "{lost}: {begun:?}"
        );
    }
    for filter in [
        LogFilter::default(),
        filter(|f| f.status = Some("published".into())),
    ] {
        let list = log.list(&filter, None, 10).await.unwrap();
        assert_eq!((list.entries.len(), list.next), (3, None));
        let counted = log.counts(&filter, COUNTED_MAX).await.unwrap();
        assert_eq!(counted.counts.iter().map(|count| count.count).sum::<u64>(), 3);
        assert_eq!(counted.complete_since, None);
    }
}

pub async fn of_many_entries_the_latest_are_counted(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 5).await;
    for event in &events {
        scene.publish_logged(std::slice::from_ref(event)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = entries(&*log).await;
    let count = async |filter: LogFilter, entries_max| {
        let counted = log.counts(&filter, entries_max).await.unwrap();
        let sum: u64 = counted.counts.iter().map(|count| count.count).sum();
        (sum, counted.complete_since)
    };
    assert_eq!(count(LogFilter::default(), 5).await, (5, None));
    assert_eq!(count(LogFilter::default(), 2).await, (2, Some(all[3].at)));
    let later = filter(|f| f.since = Some(all[4].at));
    assert_eq!(count(later, 2).await, (1, None), "all that were asked for");
}

pub async fn entries_are_counted_by_hour_and_type(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = [
        chat("p1", "u1", "s1", "chat.message.created"),
        chat("p1", "u2", "s1", "chat.message.edited"),
        chat("p2", "u1", "s2", "chat.room.created"),
        chat("p2", "u2", "s3", "order.created"),
    ];
    told(&scene, &events).await;
    // The hour can change between two of them.
    let sums = |filter: LogFilter| {
        let log = log.clone();
        async move {
            let mut sums = std::collections::BTreeMap::new();
            for count in log.counts(&filter, COUNTED_MAX).await.unwrap().counts {
                assert_eq!(count.hour.as_second() % 3_600, 0);
                *sums.entry((count.event_type, count.status)).or_insert(0) += count.count;
            }
            sums.into_iter()
                .map(|((kind, status), count)| format!("{kind} {status} {count}"))
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(
        sums(LogFilter::default()).await,
        ["Created dead 1", "Created published 2", "Edited published 1"]
    );
    assert_eq!(
        sums(filter(|f| f.project_id = Some("p1".into()))).await,
        ["Created published 1", "Edited published 1"]
    );
    let later = filter(|f| f.since = Some(Timestamp::now() + Duration::from_secs(7_200)));
    assert!(sums(later).await.is_empty());
}

pub async fn old_entries_expire_and_readers_are_told(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 6).await;
    scene.publish_logged(&events[..4]).await;
    assert_eq!(log.expire(LONG, 10).await.unwrap(), 0, "they are young");
    tokio::time::sleep(SHORT).await;
    assert_eq!(
        log.expire(SHORT / 2, 3).await.unwrap(),
        3,
        "at most three in a call"
    );
    scene.publish_logged(&events[4..]).await;
    assert_eq!(entry_ids(&entries(&*log).await), ids(&events[3..]));
    let bounds = log.bounds().await.unwrap();
    assert_eq!((bounds.expired, bounds.last), (3, 6));

    let begin = |after| Follower::begin(log.clone(), after);
    assert!(matches!(
        begin(Some(2)).await.err(),
        Some(FollowError::Expired { expired: 3 })
    ));
    let mut exact = begin(Some(3)).await.unwrap();
    assert_eq!(exact.next(page(10)).await.unwrap().entries.len(), 3);
    let mut first = begin(Some(0)).await.unwrap();
    assert_eq!(first.next(page(10)).await.unwrap().entries.len(), 3);

    // When everything has expired, positions go on.
    tokio::time::sleep(SHORT).await;
    assert_eq!(log.expire(SHORT / 2, 10).await.unwrap(), 3);
    assert_eq!(log.bounds().await.unwrap().last, 6);
    assert!(begin(Some(6)).await.is_ok());
    let list = log.list(&LogFilter::default(), None, 10).await.unwrap();
    assert!(list.entries.is_empty() && list.next.is_none());
}
