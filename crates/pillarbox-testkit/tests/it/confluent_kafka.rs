use std::time::Duration;

use pillarbox_testkit::confluent_kafka::{self, Verdict};
use pillarbox_testkit::servers;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use uuid::Uuid;

struct Sent {
    id: &'static str,
    key: &'static str,
    n: u32,
}

fn sent(id: &'static str, key: &'static str, n: u32) -> Sent {
    Sent { id, key, n }
}

/// Sends these events and returns the result of confluent-kafka. `spoil` can change a message's key or leave
/// out a header.
async fn judged(events: &[Sent], expected: u64, spoil: &str) -> Option<Verdict> {
    let kafka = servers::kafka().await?;
    let topic = format!("stranger-{}", Uuid::new_v4());
    kafka.create_topic(&topic, 2).await;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .create()
        .unwrap();
    for event in events {
        let values = [
            ("Pillarbox-Id", event.id),
            ("Pillarbox-Event-Type", "Placed"),
            ("Pillarbox-Key", event.key),
            ("Pillarbox-Aggregate-Id", event.key),
            ("Pillarbox-Schema-Version", "1"),
        ];
        let headers = values.into_iter().filter(|(name, _)| *name != spoil).fold(
            OwnedHeaders::new(),
            |headers, (key, value)| {
                headers.insert(Header {
                    key,
                    value: Some(value),
                })
            },
        );
        let payload = format!("{{\"n\":{}}}", event.n);
        let key = if spoil == "key" { "another" } else { event.key };
        let record = BaseRecord::to(&topic).key(key).payload(&payload).headers(headers);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Duration::from_secs(20)).unwrap();
    let patience = Duration::from_secs(8);
    confluent_kafka::consume_within(&kafka.bootstrap(), &topic, expected, false, patience).await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_with_key_and_headers_in_order_are_whole() {
    let events = [
        sent("1", "a", 1),
        sent("2", "b", 1),
        sent("1", "a", 1),
        sent("3", "a", 2),
    ];
    let Some(verdict) = judged(&events, 3, "").await else {
        return;
    };
    assert!(verdict.whole, "{verdict:?}");
    assert_eq!((verdict.messages, verdict.events, verdict.duplicated), (4, 3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn confluent_kafka_finds_missing_and_disordered_events() {
    let Some(verdict) = judged(&[sent("1", "a", 2), sent("2", "a", 1)], 3, "").await else {
        return;
    };
    assert!(!verdict.whole);
    assert_eq!((verdict.events, verdict.order_violations), (2, 1), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn confluent_kafka_finds_a_wrong_key_and_a_missing_header() {
    let Some(verdict) = judged(&[sent("1", "a", 1)], 1, "key").await else {
        return;
    };
    assert!(!verdict.whole && verdict.wrong_key == 1, "{verdict:?}");
    let Some(verdict) = judged(&[sent("1", "a", 1)], 1, "Pillarbox-Schema-Version").await else {
        return;
    };
    assert!(!verdict.whole && verdict.without_headers == 1, "{verdict:?}");
}
