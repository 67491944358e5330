//! Transactions: consumers that read committed see a whole batch, or nothing of it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, SinkErrorKind},
};
use pillarbox_testkit::{contract::sink::event, servers};
use uuid::Uuid;

use super::harness::{failure, in_order, new_topic, new_topic_with, open, read, to};

#[tokio::test(flavor = "multi_thread")]
async fn a_read_committed_consumer_sees_whole_batches() {
    const EVENTS: usize = 50;
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let sink = Arc::new(open(&format!("{}?transactions=true", server.url())));
    let publishing = {
        let (sink, topic) = (sink.clone(), topic.clone());
        tokio::spawn(async move {
            for round in 0..20 {
                let batch: Vec<Outgoing> = (0..EVENTS)
                    .map(|n| {
                        to(
                            &topic,
                            event(&format!("k{}", n % 5), (round * EVENTS + n).to_string()),
                        )
                    })
                    .collect();
                assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; EVENTS]);
            }
        })
    };
    let mut sizes = BTreeSet::new();
    while !publishing.is_finished() {
        sizes.insert(read(&server.bootstrap(), &topic, true).await.len());
    }
    publishing.await.unwrap();
    assert!(sizes.iter().all(|size| size % EVENTS == 0), "{sizes:?}");
    in_order(&read(&server.bootstrap(), &topic, true).await, 20 * EVENTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_a_refused_event_is_taken_back_and_goes_without_it() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic_with(server, 1, &[("max.message.bytes", "3000")]).await;
    let other = new_topic(server, 1).await;
    let sink = open(&format!("{}?transactions=true&compression=none", server.url()));
    let batch = [
        to(&other, event("a", "1")),
        to(&topic, event("large", "9".repeat(4000))),
        to(&topic, event("large", "2")),
        to(&other, event("b", "3")),
    ];
    let outcomes = sink.publish(&batch).await;
    let error = failure(&outcomes[1]);
    assert_eq!(
        (error.kind, error.in_doubt),
        (SinkErrorKind::TooLarge, false),
        "{error}"
    );
    for index in [0, 2, 3] {
        assert_eq!(outcomes[index], Outcome::NotTried, "{index}");
    }
    assert_eq!(read(&server.bootstrap(), &other, true).await, []);
    let without: Vec<Outgoing> = [0, 2, 3].map(|index| batch[index].clone()).into();
    assert_eq!(sink.publish(&without).await, vec![Outcome::Delivered; 3]);
    let seen = read(&server.bootstrap(), &other, true).await;
    assert_eq!(
        seen.len(),
        2,
        "the aborted batch must not be seen, and no event twice"
    );
    assert_eq!(read(&server.bootstrap(), &topic, true).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_producer_with_one_id_fences_the_first() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let url = format!("{}?transactional_id=relay-{}", server.url(), Uuid::new_v4());
    let (zombie, successor) = (open(&url), open(&url));
    assert_eq!(
        zombie.publish(&[to(&topic, event("a", "1"))]).await,
        [Outcome::Delivered]
    );
    assert_eq!(
        successor.publish(&[to(&topic, event("a", "2"))]).await,
        [Outcome::Delivered]
    );
    let error = failure(&zombie.publish(&[to(&topic, event("a", "1"))]).await[0]).clone();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
    assert!(error.message.contains("transactional id"), "{error}");
    assert_eq!(
        successor.publish(&[to(&topic, event("a", "3"))]).await,
        [Outcome::Delivered]
    );
    let seen: Vec<_> = read(&server.bootstrap(), &topic, true).await;
    let payloads: Vec<&[u8]> = seen.iter().map(|event| &event.payload[..]).collect();
    assert_eq!(payloads, [b"1", b"2", b"3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_several_publishers_take_turns() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 3).await;
    let sink = Arc::new(open(&format!("{}?transactions=true", server.url())));
    let publish = |writer: usize| {
        let (sink, topic) = (sink.clone(), topic.clone());
        tokio::spawn(async move {
            for round in 0..5 {
                let batch: Vec<Outgoing> = (0..20)
                    .map(|n| to(&topic, event(&format!("w{writer}"), (round * 20 + n).to_string())))
                    .collect();
                assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; 20]);
            }
        })
    };
    let writers: Vec<_> = (0..5).map(publish).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    in_order(&read(&server.bootstrap(), &topic, true).await, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_no_open_transaction_behind_the_next() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let sink = open(&format!("{}?transactions=true&linger_ms=300", server.url()));
    assert_eq!(
        sink.publish(&[to(&topic, event("a", "0"))]).await,
        [Outcome::Delivered]
    );
    let gone = [to(&topic, event("a", "1"))];
    let left = tokio::time::timeout(Duration::from_millis(100), sink.publish(&gone)).await;
    assert!(left.is_err(), "the batch ended before it was dropped");
    assert_eq!(
        sink.publish(&[to(&topic, event("a", "2"))]).await,
        [Outcome::Delivered]
    );
    let seen = read(&server.bootstrap(), &topic, true).await;
    let payloads: Vec<&[u8]> = seen.iter().map(|event| &event.payload[..]).collect();
    assert_eq!(payloads, [b"0", b"2"]);
}
