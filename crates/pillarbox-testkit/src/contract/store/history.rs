//! The event log: lists, counts, the life of an event, and what expires.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use pillarbox::Event;
use pillarbox_relay::{
    Settlement, StoredEvent,
    event_log::{FollowError, Follower, LogFilter},
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
        let expected: Vec<_> = expected.into_iter().map(|n: usize| events[n].id).collect();
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

pub async fn the_life_of_an_event_is_told(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    scene.publish_logged(&events[..1]).await;
    scene.park(&events[1..], LONG).await;
    let life = |event: &StoredEvent| log.life(event.event.id);

    let published = life(&events[0]).await.unwrap().unwrap();
    let row = published.row.unwrap();
    assert_eq!((row.seq, row.status.as_str()), (events[0].seq, "published"));
    assert!(row.published_at.is_some() && row.failures.is_empty());
    assert_eq!(row.event.unwrap(), events[0].event);
    assert_eq!(entry_ids(&published.entries), [events[0].event.id]);

    let failing = life(&events[1]).await.unwrap().unwrap();
    let row = failing.row.unwrap();
    assert_eq!((row.status.as_str(), row.attempts), ("failed", 1));
    assert_eq!(row.failures.len(), 1);
    assert_eq!(row.failures[0].sink.as_deref(), Some("events"));
    assert!(row.due_at.is_some() && row.last_error.is_some());
    assert_eq!(failing.entries, vec![]);

    let held = life(&events[2]).await.unwrap().unwrap().row.unwrap();
    assert_eq!((held.status.as_str(), held.due_at), ("held", None));
    assert!(log.life(uuid::Uuid::now_v7()).await.unwrap().is_none());
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
            for count in log.counts(&filter).await.unwrap() {
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
