//! Kafka on a real broker: the contract suite, and tests of this sink alone.

mod access;
mod audit;
mod cost;
mod faults;
mod harness;
mod mock;
mod refusals;
mod stranger;
mod topics;
mod transactions;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    sink::{Capabilities, Outcome, Outgoing, SinkError},
};
use pillarbox_testkit::{
    contract::{
        self,
        sink::{Arrived, SinkHarness, event},
    },
    servers::{self, Kafka},
    sink_contract,
};

use self::harness::{new_topic, open, read};

/// The shared broker. Each test has its own topic, given as the route's stream.
struct Harness {
    bootstrap: String,
    topic: String,
    sink: Arc<dyn Sink>,
}

/// Sends every event to one topic.
struct To {
    sink: Arc<dyn Sink>,
    topic: String,
}

#[async_trait]
impl Sink for To {
    fn capabilities(&self) -> Capabilities {
        self.sink.capabilities()
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.sink.check().await
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let routed: Vec<Outgoing> = batch
            .iter()
            .map(|outgoing| Outgoing {
                stream: match outgoing.event.event.topic.as_str() {
                    "contract.event" => Some(self.topic.as_str().into()),
                    _ => None,
                },
                ..outgoing.clone()
            })
            .collect();
        self.sink.publish(&routed).await
    }
}

#[async_trait]
impl SinkHarness for Harness {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn arrived(&mut self) -> Option<Vec<Arrived>> {
        Some(read(&self.bootstrap, &self.topic, true).await)
    }

    fn invalid(&self) -> Option<Event> {
        Some(event("bad", "0").topic("no topic"))
    }
}

async fn harness_with(settings: &str) -> Option<Harness> {
    let server = servers::kafka().await?;
    let topic = new_topic(server, 1).await;
    let sink = Arc::new(open(&format!("{}?{settings}", server.url())));
    Some(Harness {
        bootstrap: server.bootstrap(),
        topic: topic.clone(),
        sink: Arc::new(To { sink, topic }),
    })
}

async fn harness() -> Option<Harness> {
    harness_with("").await
}

sink_contract!(harness);

mod in_transactions {
    use super::*;

    async fn harness() -> Option<super::Harness> {
        harness_with("transactions=true").await
    }

    sink_contract!(harness);
}

/// A private broker that the test can stop.
struct Own {
    server: Kafka,
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl SinkHarness for Own {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn arrived(&mut self) -> Option<Vec<Arrived>> {
        Some(read(&self.server.bootstrap(), "contract.event", true).await)
    }

    async fn stop(&mut self) -> bool {
        self.server.kill().await;
        true
    }

    async fn start_again(&mut self) {
        self.server.start_again().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_broker_is_reported_in_time_and_recovers() {
    let Some(server) = Kafka::start().await else {
        return;
    };
    server.create_topic("contract.event", 1).await;
    let sink = Arc::new(open(&server.url()));
    contract::sink::an_outage_is_reported_in_time_and_ends(Own { server, sink }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_little_room_makes_a_batch_wait_and_loses_nothing() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 3).await;
    let sink = open(&format!("{}?queue_events_max=10", server.url()));
    let batch: Vec<Outgoing> = (0..500)
        .map(|n| harness::to(&topic, event(&format!("k{}", n % 7), n.to_string())))
        .collect();
    assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; 500]);
    harness::in_order(&read(&server.bootstrap(), &topic, false).await, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_side_by_side_each_get_their_own_reports() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 3).await;
    let sink = Arc::new(open(&server.url()));
    let publish = |writer: usize| {
        let (sink, topic) = (sink.clone(), topic.clone());
        tokio::spawn(async move {
            for round in 0..20 {
                let batch: Vec<Outgoing> = (0..50)
                    .map(|n| {
                        harness::to(
                            &topic,
                            event(&format!("w{writer}-{}", n % 5), (round * 50 + n).to_string()),
                        )
                    })
                    .collect();
                assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; 50]);
            }
        })
    };
    let writers: Vec<_> = (0..5).map(publish).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    harness::in_order(&read(&server.bootstrap(), &topic, false).await, 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_went_away_in_the_middle_leaves_the_sink_usable() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 1).await;
    let sink = open(&format!("{}?linger_ms=200", server.url()));
    let first = [harness::to(&topic, event("a", "1"))];
    let gone = tokio::time::timeout(Duration::from_millis(50), sink.publish(&first)).await;
    drop(gone);
    let second = [harness::to(&topic, event("a", "2"))];
    assert_eq!(sink.publish(&second).await, [Outcome::Delivered]);
}
