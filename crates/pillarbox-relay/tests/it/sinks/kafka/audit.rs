//! The live audit of Kafka: what is found, what has expired, and what is lost.

use std::time::Duration;

use pillarbox::EventId;
use pillarbox_relay::{
    Sink,
    envelope::{Envelope, Mode},
    sink::{Outcome, Outgoing, audit::Audited, kafka::KafkaSink},
};
use pillarbox_testkit::{contract::sink::event, servers, wait};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};

use super::harness::{new_topic, open, to};

async fn audited(sink: &KafkaSink) -> Audited {
    sink.audit().unwrap().audit().await
}

async fn publish_one(sink: &KafkaSink, outgoing: &Outgoing) -> EventId {
    let outcomes = sink.publish(std::slice::from_ref(outgoing)).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
    outgoing.event.event.id.clone()
}

/// Each in its own batch, so that each has a receipt.
async fn publish(sink: &KafkaSink, topic: &str, count: usize) -> Vec<EventId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(publish_one(sink, &to(topic, event("a", "1"))).await);
    }
    ids
}

fn checked(checked: u64) -> Audited {
    Audited {
        checked,
        ..Audited::default()
    }
}

/// Removes messages as retention does.
async fn drop_before(bootstrap: &str, topic: &str, offset: i64) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets
        .add_partition_offset(topic, 0, Offset::Offset(offset))
        .unwrap();
    admin
        .delete_records(&offsets, &AdminOptions::new())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_removed_has_expired_and_a_topic_that_was_created_again_has_lost_its_events() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let sink = open(&format!("kafka://{}", server.bootstrap()));
    assert_eq!(audited(&sink).await, checked(0), "the first audit only begins");
    publish(&sink, &topic, 5).await;
    assert_eq!(audited(&sink).await, checked(5));

    publish(&sink, &topic, 5).await;
    drop_before(&server.bootstrap(), &topic, 7).await;
    let expired = Audited {
        expired: 2,
        ..checked(5)
    };
    assert_eq!(audited(&sink).await, expired);

    let ids = publish(&sink, &topic, 2).await;
    server.delete_topic(&topic).await.unwrap();
    wait::until_ok(async || server.try_create_topic(&topic, 1).await).await;
    // The broker may need a moment for the new topic. What seems lost is looked up a second time.
    let lost = wait::until_ok(async || {
        let found = audited(&sink).await;
        match found.checked {
            2 => Ok(found),
            _ => Err(format!("{found:?}")),
        }
    })
    .await;
    assert_eq!((lost.lost, lost.expired), (ids, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_recognised_in_every_envelope_and_in_a_transaction() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let envelopes = [
        Envelope::Raw,
        Envelope::CloudEvents {
            mode: Mode::Binary,
            source: None,
        },
        Envelope::CloudEvents {
            mode: Mode::Structured,
            source: None,
        },
        Envelope::Pillarbox,
        Envelope::Debezium,
    ];
    for query in ["", "?transactions=true"] {
        let topic = new_topic(server, 2).await;
        let sink = open(&format!("kafka://{}{query}", server.bootstrap()));
        audited(&sink).await;
        for envelope in envelopes.clone() {
            let outgoing = Outgoing {
                envelope,
                ..to(&topic, event("a", "1"))
            };
            publish_one(&sink, &outgoing).await;
        }
        assert_eq!(audited(&sink).await, checked(5), "{query}");
        // A copy, because Kafka forgets ids.
        let outgoing = to(&topic, event("b", "1"));
        publish_one(&sink, &outgoing).await;
        publish_one(&sink, &outgoing).await;
        let copied = Audited {
            copies: 1,
            ..checked(2)
        };
        assert_eq!(audited(&sink).await, copied, "{query}");
    }
}

/// Until it ends, readers of committed messages see nothing behind its first message.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_of_another_producer_hides_nothing() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let sink = open(&format!("kafka://{}", server.bootstrap()));
    audited(&sink).await;
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", server.bootstrap())
        .set("transactional.id", format!("other-{topic}"));
    let other: BaseProducer = config.create().unwrap();
    let patience = Duration::from_secs(20);
    let (other, topic) = tokio::task::spawn_blocking(move || {
        other.init_transactions(patience).unwrap();
        other.begin_transaction().unwrap();
        other
            .send(BaseRecord::<(), _>::to(&topic).payload("open"))
            .map_err(|(error, _)| error)
            .unwrap();
        other.flush(patience).unwrap();
        (other, topic)
    })
    .await
    .unwrap();
    publish(&sink, &topic, 5).await;
    assert_eq!(audited(&sink).await, checked(5));
    assert_eq!(audited(&sink).await, checked(0), "nothing seemed lost");
    other.abort_transaction(patience).unwrap();
}

/// An aborted transaction leaves its messages in the partition, but no consumer sees them.
#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_message_is_no_copy() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let sink = open(&format!("kafka://{}?transactions=true", server.bootstrap()));
    audited(&sink).await;
    let (first, sent) = (to(&topic, event("a", "1")), to(&topic, event("b", "1")));
    publish_one(&sink, &first).await;
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", server.bootstrap())
        .set("transactional.id", format!("other-{topic}"));
    let other: BaseProducer = config.create().unwrap();
    let (patience, id) = (Duration::from_secs(20), sent.event.event.id.to_string());
    let of_topic = topic.clone();
    tokio::task::spawn_blocking(move || {
        other.init_transactions(patience).unwrap();
        other.begin_transaction().unwrap();
        let header = Header {
            key: "Pillarbox-Id",
            value: Some(&id),
        };
        let record = BaseRecord::<(), _>::to(&of_topic).payload("1");
        other
            .send(record.headers(OwnedHeaders::new().insert(header)))
            .map_err(|(error, _)| error)
            .unwrap();
        other.flush(patience).unwrap();
        other.abort_transaction(patience).unwrap();
    })
    .await
    .unwrap();
    publish_one(&sink, &sent).await;
    assert_eq!(audited(&sink).await, checked(2));
}
