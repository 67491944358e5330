//! What a third-party consumer sees: confluent-kafka, in Python.

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing},
};
use pillarbox_testkit::{confluent_kafka, contract::sink::event, servers};

use super::harness::{new_topic, new_topic_with, open, to};

fn numbered(topic: &str, numbers: std::ops::Range<usize>) -> Vec<Outgoing> {
    numbers
        .map(|n| to(topic, event(&format!("key {}", n % 7), format!("{{\"n\": {n}}}"))))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn confluent_kafka_reads_keys_headers_and_order() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 3).await;
    let sink = open(&server.url());
    for round in 0..3 {
        let batch = numbered(&topic, round * 100..(round + 1) * 100);
        assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; 100]);
    }
    let Some(verdict) = confluent_kafka::consume(&server.bootstrap(), &topic, 300, false).await else {
        return;
    };
    assert!(verdict.whole && verdict.duplicated == 0, "{verdict:?}");
    assert_eq!((verdict.messages, verdict.keys), (300, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_committed_consumer_never_sees_an_aborted_batch() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let small = new_topic_with(server, 1, &[("max.message.bytes", "2000")]).await;
    let sink = open(&format!("{}?transactions=true&compression=none", server.url()));
    assert_eq!(
        sink.publish(&numbered(&topic, 0..50)).await,
        vec![Outcome::Delivered; 50]
    );
    let mut doomed = numbered(&topic, 50..90);
    doomed.push(to(&small, event("large", "9".repeat(3000))));
    let outcomes = sink.publish(&doomed).await;
    assert!(
        outcomes[..40].iter().all(|outcome| *outcome == Outcome::NotTried),
        "{outcomes:?}"
    );
    assert_eq!(sink.publish(&doomed[..40]).await, vec![Outcome::Delivered; 40]);

    let Some(committed) = confluent_kafka::consume(&server.bootstrap(), &topic, 90, true).await else {
        return;
    };
    assert!(committed.whole, "{committed:?}");
    assert_eq!(committed.duplicated, 0, "aborted copies must not be visible");
}
