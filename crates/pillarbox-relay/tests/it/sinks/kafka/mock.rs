//! How the sink handles the errors of a cluster in trouble. librdkafka's own mock cluster returns them on
//! demand.
//!
//! The mock cluster does not check sequence numbers. A real broker uses them to refuse requests that follow a
//! lost one. So here each partition has only one request in flight: `linger` collects the events of a batch
//! into one request.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing, SinkErrorKind, kafka::KafkaSink},
};
use pillarbox_testkit::{contract::sink::event, wait};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rdkafka::{
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey as Api, RDKafkaRespErr as Answer},
};

use super::harness::{TIMEOUT, failure, in_order, open, read, to};

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 3;

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(3).unwrap();
    cluster.create_topic(TOPIC, PARTITIONS, 3).unwrap();
    cluster
}

fn sink_at(cluster: &MockCluster<'_, DefaultProducerContext>, settings: &str) -> KafkaSink {
    open(&format!("kafka://{}?{settings}", cluster.bootstrap_servers()))
}

/// Events that wait, in order per key, as in the engine. Events that did not arrive are sent first the next
/// time.
struct Waiting {
    events: Vec<Outgoing>,
    next: usize,
}

impl Waiting {
    fn new() -> Self {
        Self {
            events: Vec::new(),
            next: 0,
        }
    }

    fn add(&mut self, events: usize, keys: usize) {
        for n in self.next..self.next + events {
            self.events
                .push(to(TOPIC, event(&format!("k{}", n % keys), n.to_string())));
        }
        self.next += events;
    }

    /// Publishes the waiting events and keeps those that did not arrive. Returns the failures.
    async fn publish(&mut self, sink: &KafkaSink) -> Vec<SinkErrorKind> {
        let batch = std::mem::take(&mut self.events);
        let began = Instant::now();
        let outcomes = sink.publish(&batch).await;
        assert!(
            began.elapsed() < TIMEOUT + Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        let mut failures = Vec::new();
        let mut lost: HashMap<String, ()> = HashMap::new();
        for (outgoing, outcome) in batch.into_iter().zip(outcomes) {
            let key = outgoing.event.event.key().to_owned();
            match outcome {
                Outcome::Delivered => assert!(!lost.contains_key(&key), "{key} has a gap"),
                Outcome::NotTried => {
                    lost.insert(key, ());
                    self.events.push(outgoing);
                }
                Outcome::Failed(error) => {
                    assert!(
                        lost.insert(key, ()).is_none(),
                        "a key may have one failure; its later events are held"
                    );
                    failures.push(error.kind);
                    self.events.push(outgoing);
                }
            }
        }
        failures
    }

    /// Publishes until no event waits.
    async fn publish_all(&mut self, sink: &KafkaSink) {
        wait::until_ok(async || {
            self.publish(sink).await;
            match self.events.len() {
                0 => Ok(()),
                left => Err(format!("{left} still wait")),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_that_change_under_way_cost_nothing() {
    let cluster = cluster();
    let sink = sink_at(&cluster, "linger_ms=20");
    let mut waiting = Waiting::new();
    for round in 0..30 {
        waiting.add(60, 6);
        let leader = round % 3 + 1;
        cluster
            .partition_leader(TOPIC, round % PARTITIONS, Some(leader))
            .unwrap();
        assert_eq!(waiting.publish(&sink).await, []);
        assert_eq!(
            waiting.events.len(),
            0,
            "the client must find the new leader by itself"
        );
    }
    in_order(
        &read(&cluster.bootstrap_servers(), TOPIC, false).await,
        waiting.next,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_for_a_while_delay_and_keep_the_order() {
    let cluster = cluster();
    let sink = sink_at(&cluster, "linger_ms=20");
    let mut waiting = Waiting::new();
    waiting.add(30, 3);
    assert_eq!(waiting.publish(&sink).await, []);
    cluster.request_errors(
        Api::Produce,
        &[
            Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            Answer::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
            Answer::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Answer::RD_KAFKA_RESP_ERR__TRANSPORT,
        ],
    );
    waiting.add(30, 3);
    assert_eq!(waiting.publish(&sink).await, []);
    assert_eq!(waiting.events.len(), 0);
    in_order(
        &read(&cluster.bootstrap_servers(), TOPIC, false).await,
        waiting.next,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_reported_in_time_and_recover() {
    let cluster = cluster();
    let sink = sink_at(&cluster, "");
    cluster.request_errors(
        Api::Produce,
        &[Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 1000],
    );
    let mut waiting = Waiting::new();
    waiting.add(30, 3);
    let failures = waiting.publish(&sink).await;
    assert_eq!(failures, [SinkErrorKind::Timeout; 3]);
    cluster.clear_request_errors(Api::Produce);
    assert_eq!(waiting.publish(&sink).await, []);
    assert_eq!(waiting.events.len(), 0);
    in_order(
        &read(&cluster.bootstrap_servers(), TOPIC, false).await,
        waiting.next,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_event_is_not_sent_later() {
    let cluster = cluster();
    let sink = sink_at(&cluster, "");
    cluster.request_errors(
        Api::Produce,
        &[Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 1000],
    );
    let mut waiting = Waiting::new();
    waiting.add(30, 3);
    assert_eq!(waiting.publish(&sink).await, [SinkErrorKind::Timeout; 3]);
    // The producer's own thread drops it within a tenth of a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.clear_request_errors(Api::Produce);
    let other = [to(TOPIC, event("other", "1"))];
    assert_eq!(sink.publish(&other).await, [Outcome::Delivered]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let arrived = read(&cluster.bootstrap_servers(), TOPIC, false).await;
    assert_eq!(arrived.len(), 1, "only the event that was sent later may arrive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_reported_in_time_and_keeps_the_order() {
    let cluster = cluster();
    let sink = sink_at(&cluster, "queue_events_max=4");
    cluster.request_errors(
        Api::Produce,
        &[Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 1000],
    );
    let mut waiting = Waiting::new();
    waiting.add(30, 2);
    let failures = waiting.publish(&sink).await;
    assert!(!failures.is_empty() && failures.iter().all(|kind| *kind == SinkErrorKind::Timeout));
    cluster.clear_request_errors(Api::Produce);
    waiting.publish_all(&sink).await;
    in_order(
        &read(&cluster.bootstrap_servers(), TOPIC, false).await,
        waiting.next,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_broker_is_reported_in_time_and_late_events_are_copies() {
    let cluster = cluster();
    let sink = sink_at(&cluster, "");
    let mut waiting = Waiting::new();
    waiting.add(30, 3);
    assert_eq!(waiting.publish(&sink).await, []);
    cluster
        .broker_round_trip_time(-1, TIMEOUT + Duration::from_secs(3))
        .unwrap();
    waiting.add(30, 3);
    let failures = waiting.publish(&sink).await;
    assert_eq!(failures, [SinkErrorKind::Timeout; 3]);
    cluster.broker_round_trip_time(-1, Duration::ZERO).unwrap();
    waiting.publish_all(&sink).await;
    in_order(
        &read(&cluster.bootstrap_servers(), TOPIC, false).await,
        waiting.next,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_brokers_answer_the_order_holds() {
    use Answer::*;
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let cluster = cluster();
    let sink = sink_at(&cluster, "linger_ms=20");
    let answers = [
        RD_KAFKA_RESP_ERR_NO_ERROR,
        RD_KAFKA_RESP_ERR_NO_ERROR,
        RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        RD_KAFKA_RESP_ERR_INVALID_RECORD,
        RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RD_KAFKA_RESP_ERR__TRANSPORT,
        RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
    ];
    cluster
        .broker_round_trip_time(-1, Duration::from_millis(2))
        .unwrap();
    let mut waiting = Waiting::new();
    for _ in 0..40 {
        waiting.add(100, 5);
        let chosen: Vec<Answer> = (0..random.random_range(0..6))
            .map(|_| answers[random.random_range(0..answers.len())])
            .collect();
        cluster.request_errors(Api::Produce, &chosen);
        waiting.publish(&sink).await;
    }
    cluster.clear_request_errors(Api::Produce);
    waiting.publish_all(&sink).await;
    in_order(
        &read(&cluster.bootstrap_servers(), TOPIC, false).await,
        waiting.next,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_granted_fails_only_its_own_events() {
    let cluster = cluster();
    cluster.create_topic("secret", 1, 1).unwrap();
    cluster
        .topic_error("secret", Answer::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        .unwrap();
    let sink = sink_at(&cluster, "");
    let outcomes = sink
        .publish(&[to("secret", event("a", "1")), to(TOPIC, event("b", "2"))])
        .await;
    let error = failure(&outcomes[0]);
    assert_eq!((error.kind, error.in_doubt), (SinkErrorKind::NotGranted, false));
    assert!(error.message.contains("may not write to secret"), "{error}");
    assert_eq!(outcomes[1], Outcome::Delivered);

    // A user can have the right to describe a topic without the right to write to it.
    cluster.request_errors(
        Api::Produce,
        &[Answer::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
    );
    let outcomes = sink
        .publish(&[to(TOPIC, event("c", "3")), to(TOPIC, event("c", "4"))])
        .await;
    let error = failure(&outcomes[0]);
    assert_eq!((error.kind, error.in_doubt), (SinkErrorKind::NotGranted, false));
    assert_eq!(outcomes[1], Outcome::NotTried);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_commit_is_in_doubt_and_nothing_else_of_a_transaction_is() {
    let cluster = cluster();
    let sink = sink_at(&cluster, "transactions=true");
    let mut waiting = Waiting::new();
    waiting.add(10, 2);
    assert_eq!(waiting.publish(&sink).await, []);
    let one = [to(TOPIC, event("a", "100"))];

    cluster.request_errors(
        Api::EndTxn,
        &[Answer::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE; 1000],
    );
    let error = failure(&sink.publish(&one).await[0]).clone();
    assert!(error.in_doubt, "{error:?}");
    cluster.clear_request_errors(Api::EndTxn);
    assert_eq!(sink.publish(&one).await, [Outcome::Delivered]);

    cluster.request_errors(
        Api::Produce,
        &[Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 1000],
    );
    let error = failure(&sink.publish(&one).await[0]).clone();
    assert_eq!(
        (error.kind, error.in_doubt),
        (SinkErrorKind::Timeout, false),
        "{error}"
    );
    cluster.clear_request_errors(Api::Produce);
    assert_eq!(sink.publish(&one).await, [Outcome::Delivered]);
}
