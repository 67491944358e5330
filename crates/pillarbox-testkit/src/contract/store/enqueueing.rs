//! Events through the application's transaction and back, unchanged.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use pillarbox::{CheckError, EnqueueError, Enqueued, Event, Limits, RetryOverrides};

use super::{StoreHarness, scene::*};

/// JSON that a store would change or refuse if it parsed or rewrote payloads.
const AWKWARD: &str = " {\"b\": 1.50, \"a\":[ ], \"a\": 1e400, \"n\":123456789012345678901234567890,\n \
     \"u\":\"\\u0000 \\ud83d\\ude00 größe 🦀 \u{2028}\"} ";

pub async fn every_field_survives_the_round_trip(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let now = Timestamp::now();
    let soon = Timestamp::from_microsecond(now.as_microsecond() + 3_600_000_001).unwrap();
    let full = Event::to("größe.ünïcode.🦀")
        .event_type("Type\u{301}")
        .aggregate("aggregat", "id with 'quotes' \"and\" \\")
        .payload(AWKWARD)
        .stream("STREAM")
        .schema_version(i32::MAX)
        .aggregate_version(i64::MAX)
        .partition_key("%_;--'")
        .header(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        .header("free", "größe \"quoted\" \\ 🦀")
        .header("empty", "")
        .project_id("p-1")
        .user_id("user, 7")
        .available_at(soon)
        .retry(
            RetryOverrides::default()
                .max_attempts(1000)
                .base_delay_ms(1)
                .max_delay_ms(86_400_000)
                .backoff_multiplier(1.7),
        );
    let bare = Event::to("t")
        .id("Zahlung 'größer' 42 \\ %_")
        .event_type("T")
        .aggregate("a", "1")
        .aggregate_version(0);
    let scalars = ["null", "true", "0", "\"\"", "[]"].map(|text| event("scalar").payload(text));
    let mut events = vec![full, bare];
    events.extend(scalars);
    scene.commit(&events).await;
    let read = drain(&mut scene.reader(), page(3)).await;
    assert!(read.unreadable.is_empty(), "{:?}", read.unreadable);
    for (read, written) in read.events.iter().zip(&events) {
        assert_eq!(read.event.payload, written.payload, "byte for byte");
        assert_eq!(&read.event, written);
        let age = Timestamp::now().duration_since(read.created_at);
        assert!(
            age.abs().unsigned_abs() < Duration::from_secs(60),
            "created {age:?} ago"
        );
    }
    assert_eq!(read.events.len(), events.len());
}

pub async fn a_large_payload_survives_byte_for_byte(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let max = Limits::default().payload_bytes_max;
    // Text that does not compress, so that a store which moves large values out of the row does so.
    let text: String = (0..max as u64 - 2)
        .map(|n| char::from(b'a' + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as u8 % 26))
        .collect();
    let large = event("a").payload(format!("\"{text}\""));
    assert_eq!(large.payload.len(), max);
    scene.commit(std::slice::from_ref(&large)).await;
    let read = drain(&mut scene.reader(), page(10)).await;
    assert_eq!(read.events.len(), 1);
    assert!(read.events[0].event.payload == large.payload);
}

pub async fn the_same_id_is_written_once(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let limits = Limits::default();
    let one = event("a");
    let mut tx = scene.harness.begin().await;
    assert_eq!(
        tx.enqueue(&limits, std::slice::from_ref(&one)).await.unwrap(),
        [Enqueued::New]
    );
    assert_eq!(
        tx.enqueue(&limits, std::slice::from_ref(&one)).await.unwrap(),
        [Enqueued::Duplicate]
    );
    tx.commit().await;
    let mut tx = scene.harness.begin().await;
    let changed = one.clone().payload("2");
    let new = event("b");
    let answer = tx.enqueue(&limits, &[changed, new.clone()]).await.unwrap();
    assert_eq!(answer, [Enqueued::Duplicate, Enqueued::New]);
    tx.commit().await;
    let read = drain(&mut scene.reader(), page(10)).await.events;
    assert_eq!(
        read.iter().map(|e| e.event.clone()).collect::<Vec<_>>(),
        [one, new]
    );
}

pub async fn the_same_id_in_one_batch_is_written_once(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let (one, two) = (event("a"), event("b"));
    let batch = [one.clone(), two.clone(), one.clone().payload("2"), two.clone()];
    let mut tx = scene.harness.begin().await;
    let answer = tx.enqueue(&Limits::default(), &batch).await.unwrap();
    use Enqueued::{Duplicate, New};
    assert_eq!(answer, [New, New, Duplicate, Duplicate], "the first counts");
    tx.commit().await;
    let read = drain(&mut scene.reader(), page(10)).await.events;
    assert_eq!(
        read.iter().map(|e| e.event.clone()).collect::<Vec<_>>(),
        [one, two]
    );
}

pub async fn a_refused_event_leaves_the_transaction_usable(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let limits = Limits::default().payload_bytes_max(100);
    let good = event("a");
    let mut tx = scene.harness.begin().await;
    let bad = [
        event("a").payload("{"),
        event("a").payload(&b"\"\xff\""[..]),
        event("a").payload(format!("\"{}\"", "x".repeat(100))),
        event(""),
        event(&"x".repeat(256)),
        event("nul\0"),
        event("a").schema_version(0),
        event("a").aggregate_version(-1),
        event("a").id(uuid::Uuid::nil()),
        event("a").id(""),
        event("a").id("x".repeat(256)),
        event("a").id("line\nbreak"),
    ];
    for bad in bad {
        match tx.enqueue(&limits, &[good.clone(), bad]).await.unwrap_err() {
            EnqueueError::Refused { index: 1, .. } => {}
            other => panic!("{other}"),
        }
    }
    let error = tx.enqueue(&limits, &[event("a").payload("{")]).await.unwrap_err();
    let EnqueueError::Refused { problem, .. } = error else {
        panic!("{error}")
    };
    assert!(matches!(problem, CheckError::PayloadNotJson { .. }));
    assert_eq!(
        tx.enqueue(&limits, std::slice::from_ref(&good)).await.unwrap(),
        [Enqueued::New]
    );
    assert!(tx.enqueue(&limits, &[]).await.unwrap().is_empty());
    tx.commit().await;
    assert_eq!(ids(&drain(&mut scene.reader(), page(10)).await.events), [good.id]);
}

pub async fn the_admin_writes_all_or_none(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let admin = scene.harness.admin();
    let limits = Limits::default();
    let events = [event("a"), event("b")];
    assert!(admin.enqueue(&limits, &[event("c"), event("")]).await.is_err());
    let answer = admin
        .enqueue(
            &limits,
            &[events[0].clone(), events[0].clone(), events[1].clone()],
        )
        .await;
    assert_eq!(
        answer.unwrap(),
        [Enqueued::New, Enqueued::Duplicate, Enqueued::New]
    );
    assert_eq!(
        ids(&drain(&mut scene.reader(), page(10)).await.events),
        written(&events)
    );
}

pub async fn many_events_keep_their_order(harness: Arc<dyn StoreHarness>) {
    let scene = Scene::new(harness).await;
    let mut events: Vec<Event> = (0..2_500).map(|n| event(&format!("key-{}", n % 10))).collect();
    // Ids that do not increase in the order of writing.
    let ids_reversed: Vec<_> = events.iter().rev().map(|e| e.id.clone()).collect();
    for (event, id) in events.iter_mut().zip(ids_reversed) {
        event.id = id;
    }
    scene.commit(&events).await;
    let read = drain(&mut scene.reader(), page(1_000)).await.events;
    assert!(ids(&read) == written(&events), "in the order given");
}
