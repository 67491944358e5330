//! The event log: what a settlement appends, and how it is followed.

use std::{sync::Arc, time::Duration};

use pillarbox::{Event, EventId};
use pillarbox_relay::{
    Settlement, StoredEvent,
    dead::{Actor, DeadFilter, ReplayAs},
    event_log::{EventLog, FollowError, Follower, LogEntry, LogFilter, LogOutcome, LogRow, Stretch},
    settlement::DeadReason,
    store::StoreErrorKind,
};

use super::{StoreHarness, scene::*};

/// All rows of the log.
pub async fn rows(log: &dyn EventLog) -> Vec<LogRow> {
    log.read(0, page(1_000)).await.unwrap()
}

/// All entries of the log, in the order of their positions.
pub async fn entries(log: &dyn EventLog) -> Vec<LogEntry> {
    let entry = |row| match row {
        LogRow::Entry(entry) => Some(*entry),
        LogRow::Void(_) => None,
    };
    rows(log).await.into_iter().filter_map(entry).collect()
}

pub fn entry_ids(entries: &[LogEntry]) -> Vec<EventId> {
    entries.iter().map(|entry| entry.event.id.clone()).collect()
}

impl Scene {
    /// Publishes events with a log.
    pub async fn publish_logged(&self, events: &[StoredEvent]) {
        self.settle(Settlement {
            published: seqs(events),
            logged: seqs(events),
            ..Settlement::default()
        })
        .await;
    }

    async fn die_logged(&self, event: &StoredEvent) {
        let mut one = dead(event, 3);
        one.logged = true;
        self.settle(Settlement {
            dead: vec![one],
            ..Settlement::default()
        })
        .await;
    }
}

macro_rules! log_of {
    ($harness:ident) => {
        match $harness.event_log() {
            Some(log) => log,
            None => return,
        }
    };
}
pub(super) use log_of;

pub async fn a_delivery_is_appended_with_all_its_fields(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let mut event = Event::to("chat.message.created")
        .event_type("MessageCreated")
        .aggregate("session", "s-1")
        .aggregate_version(7)
        .schema_version(3)
        .partition_key("room-1")
        .stream("CHAT")
        .project_id("p-1")
        .user_id("u-1")
        .header("correlation-id", "c-1")
        .header("x", "größer")
        .payload("{\"text\": \"a\\nb\", \"n\": 12345678901234567890}");
    event.id = EventId::new();
    scene.commit(std::slice::from_ref(&event)).await;
    let stored = drain(&mut scene.reader(), page(10)).await.events;
    scene.publish_logged(&stored).await;
    let entries = entries(&*log).await;
    let [entry] = &entries[..] else {
        panic!("one entry, not {entries:?}")
    };
    assert_eq!((entry.position, entry.seq, entry.attempts), (1, stored[0].seq, 0));
    assert_eq!(entry.outcome, LogOutcome::Published);
    assert_eq!(entry.event, event);
    assert_eq!(entry.created_at, stored[0].created_at);
    assert!(entry.at >= entry.created_at);
}

pub async fn only_events_with_a_log_are_appended(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 6).await;
    scene.publish(&events[..2]).await;
    assert_eq!(rows(&*log).await, vec![]);
    // Some of a batch.
    scene
        .settle(Settlement {
            published: seqs(&events[2..5]),
            logged: vec![events[3].seq],
            ..Settlement::default()
        })
        .await;
    assert_eq!(entry_ids(&entries(&*log).await), [events[3].event.id.clone()]);
    for event in &events[2..5] {
        assert_eq!(scene.row(event).await.status, "published");
    }
}

/// An index has room for less than a header may have. If the entry could not be written, nothing of its batch could be
/// settled.
pub async fn a_long_correlation_id_is_searched_by_its_beginning(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    // A text that can't be compressed.
    let mut long = String::new();
    while long.len() < 12_000 {
        long.push_str(&uuid::Uuid::new_v4().simple().to_string());
    }
    let event = Event::to("t")
        .event_type("x")
        .aggregate("y", "z")
        .header("correlation-id", &long)
        .payload("1");
    scene.commit(std::slice::from_ref(&event)).await;
    let stored = drain(&mut scene.reader(), page(10)).await.events;
    scene.publish_logged(&stored).await;
    let filter = LogFilter {
        correlation_id: Some(long[..255].to_owned()),
        ..LogFilter::default()
    };
    let found = log.list(&filter, None, 10).await.unwrap().entries;
    assert_eq!(entry_ids(&found), [event.id]);
    assert_eq!(
        found[0].event.headers["correlation-id"], long,
        "the event itself is whole"
    );
}

pub async fn a_delivery_is_appended_once(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 3).await;
    scene.publish_logged(&events[..2]).await;
    scene.publish_logged(&events).await;
    // The same from the side table.
    let parked = scene.stored("b", 2).await;
    scene.park(&parked, SHORT).await;
    for _ in 0..2 {
        scene
            .settle(Settlement {
                published_parked: parked.iter().map(super::scene::parked).collect(),
                logged: seqs(&parked),
                ..Settlement::default()
            })
            .await;
    }
    let expected: Vec<_> = events.iter().chain(&parked).map(|e| e.event.id.clone()).collect();
    assert_eq!(entry_ids(&entries(&*log).await), expected);
    assert_eq!(
        entries(&*log).await[3].attempts,
        1,
        "the failed attempt is counted"
    );
}

pub async fn each_death_is_appended_and_the_delivery_after_it(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let letters = harness.dead_letters();
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 1).await;
    scene.die_logged(&events[0]).await;
    scene.die_logged(&events[0]).await;
    let statuses = || async {
        let entries = entries(&*log).await;
        entries
            .iter()
            .map(|entry| entry.outcome.status())
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses().await, ["dead"], "settled twice, dead once");
    let entry = entries(&*log).await.remove(0);
    assert_eq!(
        entry.outcome,
        LogOutcome::Dead {
            reason: DeadReason::MaxRetriesExceeded,
            error: "gave up".into()
        }
    );
    assert_eq!(
        (entry.event.id, entry.attempts, entry.event.topic.as_str()),
        (events[0].event.id.clone(), 3, "contract.tested")
    );
    let Some(letters) = letters else { return };
    let actor = Actor {
        by: "test".into(),
        why: None,
    };
    let all = DeadFilter::default();
    let replay = || letters.replay(&all, 10, ReplayAs::Same, &actor);
    assert_eq!(replay().await.unwrap(), 1);
    scene.die_logged(&events[0]).await;
    assert_eq!(statuses().await, ["dead", "dead"]);
    assert_eq!(replay().await.unwrap(), 1);
    scene
        .settle(Settlement {
            published_parked: vec![parked(&events[0])],
            logged: seqs(&events),
            ..Settlement::default()
        })
        .await;
    assert_eq!(statuses().await, ["dead", "dead", "published"]);
}

pub async fn a_fenced_settlement_appends_nothing(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    let mut stale = scene.held.clone();
    stale.iter_mut().for_each(|lane| lane.epoch -= 1);
    for settlement in [
        Settlement {
            published: seqs(&events),
            logged: seqs(&events),
            ..Settlement::default()
        },
        Settlement {
            published: seqs(&events[..1]),
            logged: seqs(&events[..1]),
            held: vec![parked(&events[1])],
            ..Settlement::default()
        },
    ] {
        let error = scene.store.settle(&stale, &settlement).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Fenced);
    }
    assert_eq!(entries(&*log).await, vec![]);
}

pub async fn a_mixed_batch_is_appended_with_its_settlement(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let a = scene.stored("a", 4).await;
    let b = scene.stored("b", 2).await;
    let mut died = dead(&a[1], 1);
    died.logged = true;
    scene
        .settle(Settlement {
            published: seqs(&a[..1]),
            failed: vec![failed(&b[0], 1, LONG)],
            held: vec![parked(&b[1])],
            dead: vec![died, dead(&a[2], 1)],
            logged: seqs(&a[..1]),
            ..Settlement::default()
        })
        .await;
    let found: Vec<_> = entries(&*log)
        .await
        .iter()
        .map(|entry| (entry.event.id.clone(), entry.outcome.status()))
        .collect();
    assert_eq!(
        found,
        [
            (a[0].event.id.clone(), "published"),
            (a[1].event.id.clone(), "dead")
        ]
    );
}

pub async fn pages_of_the_log_have_every_entry_once(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 30).await;
    for batch in events.chunks(7) {
        scene.publish_logged(batch).await;
    }
    for limit in [page(1), page(4), page(100)] {
        let mut follower = Follower::begin(log.clone(), Some(0)).await.unwrap();
        let mut read = Vec::new();
        loop {
            let followed = follower.next(limit).await.unwrap();
            assert!(followed.entries.len() <= limit.events);
            read.extend(followed.entries);
            if !followed.more {
                break;
            }
        }
        assert_eq!(entry_ids(&read), ids(&events));
        assert_eq!(follower.position(), read.last().unwrap().position);
    }
    // A limit of bytes still returns an entry.
    let mut small = page(100);
    small.bytes = 1;
    assert_eq!(log.read(0, small).await.unwrap().len(), 1);
}

pub async fn a_follower_continues_after_its_position(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 5).await;
    scene.publish_logged(&events[..3]).await;
    let mut new = Follower::begin(log.clone(), None).await.unwrap();
    let mut resumed = Follower::begin(log.clone(), Some(2)).await.unwrap();
    scene.publish_logged(&events[3..]).await;
    assert_eq!(
        entry_ids(&new.next(page(10)).await.unwrap().entries),
        ids(&events[3..])
    );
    assert_eq!(
        entry_ids(&resumed.next(page(10)).await.unwrap().entries),
        ids(&events[2..])
    );
    let beyond = Follower::begin(log, Some(900)).await.err();
    assert!(
        matches!(beyond, Some(FollowError::Beyond { last: 5 })),
        "{beyond:?}"
    );
}

/// 0 would mean the beginning of the log when the reader comes back.
pub async fn a_reader_of_an_empty_log_gets_a_position(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness).await;
    let events = scene.stored("a", 2).await;
    let mut follower = Follower::begin(log.clone(), None).await.unwrap();
    assert_eq!(follower.position(), 1);
    scene.publish_logged(&events).await;
    assert_eq!(
        entry_ids(&follower.next(page(10)).await.unwrap().entries),
        ids(&events)
    );
    assert_eq!(follower.position(), 3);
}

pub async fn a_position_that_nobody_used_is_passed(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 3).await;
    scene.publish_logged(&events[..1]).await;
    if !harness.lose_log_position().await {
        return;
    }
    scene.publish_logged(&events[1..]).await;
    let mut follower = Follower::begin(log.clone(), Some(0)).await.unwrap();
    let mut read = Vec::new();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while read.len() < 3 {
        assert!(tokio::time::Instant::now() < deadline, "only {read:?}");
        let followed = follower.next(page(10)).await.unwrap();
        read.extend(followed.entries);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(entry_ids(&read), ids(&events));
    let positions: Vec<_> = rows(&*log).await.iter().map(LogRow::position).collect();
    assert_eq!(positions, [1, 2, 3, 4], "the lost position is void for good");
    assert_eq!(rows(&*log).await[1], LogRow::Void(Stretch { first: 2, last: 2 }));
}

pub async fn relays_that_settle_together_leave_no_gap(harness: Arc<dyn StoreHarness>) {
    let log = log_of!(harness);
    let scene = Scene::new(harness.clone()).await;
    let another = harness.another();
    let a = scene.stored("a", 60).await;
    let b = scene.stored("b", 60).await;
    let settle = |store: Arc<dyn pillarbox_relay::Store>, events: Vec<StoredEvent>| {
        let held = scene.held.clone();
        async move {
            for batch in events.chunks(3) {
                let settlement = Settlement {
                    published: seqs(batch),
                    logged: seqs(batch),
                    ..Settlement::default()
                };
                store.settle(&held, &settlement).await.unwrap();
            }
        }
    };
    let mut follower = Follower::begin(log.clone(), Some(0)).await.unwrap();
    let follow = async {
        let mut read: Vec<LogEntry> = Vec::new();
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while read.len() < 120 {
            assert!(
                tokio::time::Instant::now() < deadline,
                "only {} entries",
                read.len()
            );
            let followed = follower.next(page(50)).await.unwrap();
            read.extend(followed.entries);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        read
    };
    let one = tokio::spawn(settle(scene.store.clone(), a.clone()));
    let two = tokio::spawn(settle(another, b.clone()));
    let read = follow.await;
    one.await.unwrap();
    two.await.unwrap();
    for (key, events) in [("a", &a), ("b", &b)] {
        let of_key: Vec<_> = read
            .iter()
            .filter(|entry| entry.event.aggregate_id == key)
            .map(|entry| entry.event.id.clone())
            .collect();
        assert_eq!(of_key, ids(events), "every event of {key} once, in order");
    }
}
