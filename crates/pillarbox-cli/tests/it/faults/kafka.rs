//! PostgreSQL to Kafka: the tests of NATS, and tests of Kafka alone. Kafka does not drop copies of another
//! producer, so copies are allowed.

use pillarbox_testkit::torture::Campaign;

use super::{
    harness::{Load, Producer, Scene},
    outages::{assert_nobody_was_charged, moves},
    relays::{busy, kill_nine},
};

/// Kills a relay in the middle of a batch, ten times, while another one works; with Kafka.
#[tokio::test(flavor = "multi_thread")]
async fn torture_kill_nine_before_kafka() {
    let campaign = Campaign::begin("kill_nine_before_kafka");
    let Some((scene, kafka)) = Scene::before_kafka(|config| config.lease_ms = 500).await else {
        return;
    };
    let other = kill_nine(&scene, &campaign).await;
    scene.assert_whole_in(&kafka).await;
    other.stop().await;
}

/// Shuts Kafka down and kills it under a relay.
#[tokio::test(flavor = "multi_thread")]
async fn torture_kafka_is_restarted_under_load() {
    let campaign = Campaign::begin("kafka_is_restarted_under_load");
    let Some((scene, mut kafka)) = Scene::before_kafka(|_| {}).await else {
        return;
    };
    let load = Load::start(&scene, campaign.seed());
    let relay = scene.relay("relay").await;
    moves(&scene).await;
    kafka.restart().await;
    moves(&scene).await;
    kafka.kill().await;
    kafka.start_again().await;
    moves(&scene).await;
    while campaign.goes_on(0, 0) {
        kafka.restart().await;
        moves(&scene).await;
    }
    load.stop().await;
    scene.assert_whole_in(&kafka).await;
    assert_nobody_was_charged(&scene).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_away_from_the_start_and_paused_later_charges_no_event() {
    let Some((scene, mut kafka)) = Scene::before_kafka(|config| config.publish_timeout_ms = 1_000).await
    else {
        return;
    };
    kafka.stop().await;
    let producer = Producer::new(&scene);
    for n in 0..50 {
        producer.place(&format!("key-{}", n % 10), 2).await;
    }
    let mut relay = scene.spawn("relay");
    relay.says("the sink is away: pausing it").await;
    kafka.start_again().await;
    scene.settled().await;
    kafka.pause().await;
    for n in 0..20 {
        producer.place(&format!("key-{}", n % 10), 2).await;
    }
    relay.says_times("the sink is away: pausing it", 2).await;
    kafka.resume().await;
    scene.assert_whole_in(&kafka).await;
    assert_nobody_was_charged(&scene).await;
    relay.stop().await;
}

/// Consumers that read committed never see the open transaction of a killed relay.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_killed_in_a_transaction_loses_nothing() {
    let adjust = |config: &mut super::harness::Config| {
        config.lease_ms = 500;
        config.sink += "?transactions=true";
    };
    let Some((scene, kafka)) = Scene::before_kafka(adjust).await else {
        return;
    };
    let load = Load::start(&scene, 5);
    for n in 0..3 {
        let name = format!("victim-{n}");
        let victim = scene.relay(&name).await;
        busy(&scene, &name).await;
        victim.kill().await;
    }
    load.stop().await;
    let last = scene.relay("last").await;
    scene.assert_whole_in(&kafka).await;
    last.stop().await;
}
