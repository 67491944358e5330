use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::{self, stream};
use pillarbox_testkit::nats_py::{self, Verdict};
use pillarbox_testkit::servers::Nats;
use pillarbox_testkit::wait;

struct Sent {
    id: &'static str,
    key: &'static str,
    n: u32,
}

fn sent(id: &'static str, key: &'static str, n: u32) -> Sent {
    Sent { id, key, n }
}

/// Publishes these events so that the broker does not drop copies, and returns the result of nats-py.
async fn judged(events: &[Sent], expected: u64, without: &str) -> Option<Verdict> {
    let nats = Nats::start().await?;
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let subjects = vec!["events.>".to_owned()];
    // The shortest window that the server allows. The test waits for its end, because only then is a copy
    // accepted.
    let duplicate_window = Duration::from_millis(100);
    let config = stream::Config {
        name: "EVENTS".to_owned(),
        subjects,
        duplicate_window,
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    for event in events {
        let mut headers = HeaderMap::new();
        let values = [
            ("Nats-Msg-Id", event.id),
            ("Pillarbox-Event-Type", "Placed"),
            ("Pillarbox-Key", event.key),
            ("Pillarbox-Aggregate-Id", event.key),
            ("Pillarbox-Schema-Version", "1"),
        ];
        values
            .into_iter()
            .filter(|(name, _)| *name != without)
            .for_each(|(name, value)| headers.insert(name, value));
        let start = Instant::now();
        loop {
            let payload = format!("{{\"n\":{}}}", event.n).into();
            let acknowledged = context
                .publish_with_headers("events.placed", headers.clone(), payload)
                .await
                .unwrap();
            if !acknowledged.await.unwrap().duplicate {
                break;
            }
            assert!(start.elapsed() < wait::PATIENCE, "a copy is still dropped");
            tokio::time::sleep(duplicate_window).await;
        }
    }
    nats_py::consume_within(&nats.url(), "EVENTS", expected, Duration::from_secs(3)).await
}

#[tokio::test]
async fn events_once_with_headers_in_order_are_whole() {
    let events = [
        sent("1", "a", 1),
        sent("2", "b", 1),
        sent("3", "a", 2),
        sent("4", "b", 5),
    ];
    let Some(verdict) = judged(&events, 4, "").await else {
        return;
    };
    assert!(verdict.whole, "{verdict:?}");
    assert_eq!((verdict.messages, verdict.events), (4, 4));
}

#[tokio::test]
async fn nats_py_finds_missing_doubled_and_disordered_events() {
    let events = [sent("1", "a", 2), sent("2", "a", 1), sent("1", "a", 2)];
    let Some(verdict) = judged(&events, 3, "").await else {
        return;
    };
    assert!(!verdict.whole);
    assert_eq!(
        (verdict.events, verdict.duplicated, verdict.order_violations),
        (2, 1, 1),
        "{verdict:?}"
    );
}

#[tokio::test]
async fn nats_py_finds_a_missing_header() {
    let Some(verdict) = judged(&[sent("1", "a", 1)], 1, "Pillarbox-Schema-Version").await else {
        return;
    };
    assert!(!verdict.whole);
    assert_eq!(verdict.without_headers, 1, "{verdict:?}");
}
