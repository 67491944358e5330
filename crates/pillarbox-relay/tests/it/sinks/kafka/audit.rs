//! The live audit of Kafka: what is found, what has expired, and what is lost.

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
};
use uuid::Uuid;

use super::harness::{new_topic, open, to};

async fn audited(sink: &KafkaSink) -> Audited {
    sink.audit().unwrap().audit().await.unwrap()
}

async fn publish_one(sink: &KafkaSink, outgoing: &Outgoing) -> Uuid {
    let outcomes = sink.publish(std::slice::from_ref(outgoing)).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
    outgoing.event.event.id
}

/// Each in its own batch, so that each has a receipt.
async fn publish(sink: &KafkaSink, topic: &str, count: usize) -> Vec<Uuid> {
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
    let lost = wait::until_ok(async || {
        let found = audited(&sink).await;
        if found.checked == 2 {
            Ok(found)
        } else {
            Err("the sample is gone")
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
