//! The bounds of a page, and rows that can't be read.

use std::sync::Arc;

use pillarbox::Event;
use pillarbox_relay::store::PageLimit;

use super::{StoreHarness, scene::*};

fn sized(key: &str, bytes: usize) -> Event {
    event(key).payload(format!("\"{}\"", "x".repeat(bytes - 2)))
}

pub async fn a_page_keeps_its_limit_of_bytes(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events: Vec<Event> = (0..9).map(|n| sized(&format!("key-{n}"), 1_000)).collect();
    scene.commit(&events).await;
    let limit = PageLimit {
        bytes: 3_500,
        ..page(100)
    };
    let mut reader = scene.reader();
    let first = reader.next(limit).await.unwrap();
    assert_eq!(first.events.len(), 3, "three of 1,000 bytes fit into 3,500");
    assert!(first.more);
    let mut read = first.events;
    let rest = drain(&mut reader, limit).await;
    assert!(rest.pages >= 2);
    read.extend(rest.events);
    assert_eq!(ids(&read), written(&events));
}

pub async fn headers_count_against_the_limit_of_bytes(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let large = |n| event(&format!("key-{n}")).header("note", "x".repeat(1_000));
    let events: Vec<Event> = (0..6).map(large).collect();
    scene.commit(&events).await;
    let limit = PageLimit {
        bytes: 3_500,
        ..page(100)
    };
    let mut reader = scene.reader();
    let first = reader.next(limit).await.unwrap();
    assert!(first.events.len() <= 3, "{} of 1,000 bytes", first.events.len());
    assert!(first.more);
    let mut read = first.events;
    read.extend(drain(&mut reader, limit).await.events);
    assert_eq!(ids(&read), written(&events));
}

pub async fn a_page_has_one_event_however_large(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = [
        sized("a", 50),
        sized("b", 5_000),
        sized("c", 5_000),
        sized("d", 50),
    ];
    scene.commit(&events).await;
    let limit = PageLimit {
        bytes: 100,
        ..page(100)
    };
    let mut reader = scene.reader();
    let mut read = Vec::new();
    for _ in 0..4 {
        let page = reader.next(limit).await.unwrap();
        assert_eq!(page.events.len(), 1);
        read.extend(page.events);
    }
    assert_eq!(ids(&read), written(&events));
    assert!(drain(&mut reader, limit).await.events.is_empty());
}

pub async fn a_too_large_payload_is_unreadable_and_stops_nothing(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = [
        sized("a", 100),
        sized("b", 101),
        sized("c", 100),
        sized("b", 20_000),
    ];
    scene.commit(&events).await;
    let limit = PageLimit {
        payload_bytes_max: 100,
        ..page(2)
    };
    let mut reader = scene.reader();
    let read = drain(&mut reader, limit).await;
    assert_eq!(ids(&read.events), [events[0].id.clone(), events[2].id.clone()]);
    assert_eq!(read.unreadable.len(), 2, "each once");
    assert!(read.unreadable[0].seq > read.events[0].seq && read.unreadable[0].seq < read.events[1].seq);
    assert_eq!(read.unreadable[0].lane, read.unreadable[1].lane);
    for unreadable in &read.unreadable {
        assert!(
            unreadable.problem.contains("bytes") && unreadable.problem.contains("100"),
            "says what is wrong: {}",
            unreadable.problem
        );
    }
}

pub async fn a_corrupt_row_is_unreadable_and_stops_nothing(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let events = scene.commit_key("a", 3).await;
    if !scene.harness.corrupt(events[1].id.clone()).await {
        return;
    }
    let mut reader = scene.reader();
    let read = drain(&mut reader, page(1)).await;
    assert_eq!(ids(&read.events), [events[0].id.clone(), events[2].id.clone()]);
    assert_eq!(read.unreadable.len(), 1, "once");
    assert!(!read.unreadable[0].problem.is_empty());
    assert_eq!(read.unreadable[0].lane, read.events[0].lane);

    // It dies without a key, because the key can't be read, and is not returned again.
    let unreadable = &read.unreadable[0];
    scene
        .settle(pillarbox_relay::Settlement {
            dead: vec![pillarbox_relay::settlement::Dead {
                seq: unreadable.seq,
                subject: None,
                lane: unreadable.lane,
                key: None,
                after: pillarbox_relay::route::AfterDeath::Skip,
                attempts: 0,
                reason: pillarbox_relay::settlement::DeadReason::PoisonMessage,
                failure: super::scene::failure(&unreadable.problem),
                tried: false,
                logged: false,
            }],
            ..Default::default()
        })
        .await;
    let row = scene.harness.row(events[1].id.clone()).await.unwrap();
    assert_eq!(
        (row.status.as_str(), row.dead_reason.as_deref()),
        ("dead", Some("poison_message"))
    );
    assert!(drain(&mut scene.reader(), page(10)).await.unreadable.is_empty());
}
