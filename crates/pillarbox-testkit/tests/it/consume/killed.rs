//! Consumers that are killed while events flow.

use std::{path::Path, time::Duration};

use pillarbox_testkit::{
    consumer::{Effects, Plan, events},
    servers::{self, Nats},
    torture::Campaign,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::harness::{effects, publish_kafka, publish_nats, stream, topics};

const EVENTS: usize = 50_000;
const KEYS: usize = 400;
const KILLS: usize = 20;

pub(super) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_consumer"))
}

/// Kills the consumer twenty times, each time after some random progress, and lets the last one finish.
async fn kill_again_and_again(plan: &Plan, effects: &Effects, events: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let step = (events / (KILLS + 1)) as i64;
    for _ in 0..KILLS {
        let mut consumer = plan.start(program());
        let further = random.random_range(1..2 * step);
        let target = (effects.count().await + further).min(events as i64 - 1);
        effects.reach(target).await;
        // Not always right after a commit.
        tokio::time::sleep(Duration::from_millis(random.random_range(0..30))).await;
        consumer.kill().await.unwrap();
    }
    let mut last = plan.start(program());
    effects.reach(events as i64).await;
    // Stop it properly, so that a copy that is still on its way can arrive.
    drop(last.stdin.take());
    assert!(last.wait().await.unwrap().success());
}

async fn killed_on_jetstream(count: usize, failing: f64, panicking: f64, seed: u64) {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(count, KEYS, seed);
    let plan = Plan {
        nats: Some(nats.url()),
        failing,
        panicking,
        ..Plan::new(&url, "THINGS")
    };
    tokio::join!(
        publish_nats(&context, "THINGS.changed", &events),
        kill_again_and_again(&plan, &effects, events.len(), seed),
    );
    effects.assert_whole(&events).await;
}

async fn killed_on_kafka(count: usize, failing: f64, panicking: f64, seed: u64) {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let topic = format!("things-{seed}");
    topics(kafka, &topic, 6).await;
    let events = events(count, KEYS, seed);
    let bootstrap = kafka.bootstrap();
    let plan = Plan {
        kafka: Some(bootstrap.clone()),
        // Tests share the broker. Two members with the same group and instance would expel each other.
        group: topic.clone(),
        // The broker recognises a restarted member by this name and returns its partitions at once.
        instance: Some("one".to_owned()),
        failing,
        panicking,
        ..Plan::new(&url, &topic)
    };
    tokio::join!(
        publish_kafka(&bootstrap, &topic, &events),
        kill_again_and_again(&plan, &effects, events.len(), seed),
    );
    effects.assert_whole(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_jetstream_killed_twenty_times_applies_every_event_once_and_in_order() {
    killed_on_jetstream(EVENTS, 0.0, 0.0, 1).await;
}

/// A JetStream consumer is killed twenty times; one handler in twenty fails, one in a hundred panics
#[tokio::test(flavor = "multi_thread")]
async fn torture_killed_consumer_of_jetstream_with_failing_handlers() {
    let campaign = Campaign::begin("killed_consumer_of_jetstream_with_failing_handlers");
    killed_on_jetstream(EVENTS, 0.05, 0.01, campaign.seed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_kafka_killed_twenty_times_applies_every_event_once_and_in_order() {
    killed_on_kafka(EVENTS, 0.0, 0.0, 3).await;
}

/// A Kafka consumer is killed twenty times; one handler in twenty fails, one in a hundred panics
#[tokio::test(flavor = "multi_thread")]
async fn torture_killed_consumer_of_kafka_with_failing_handlers() {
    let campaign = Campaign::begin("killed_consumer_of_kafka_with_failing_handlers");
    killed_on_kafka(EVENTS, 0.05, 0.01, campaign.seed()).await;
}
