//! The same tests from MongoDB to Kafka.

use std::time::Duration;

use pillarbox_testkit::{
    servers::{self, Kafka, Mongo, MongoOptions},
    torture::Campaign,
};
use rand::RngExt;

use super::harness::{MongoLoad, MongoScene, assert_whole_in};

/// Kills a relay in the middle of a batch, ten times, while another one works; from MongoDB to Kafka.
#[tokio::test(flavor = "multi_thread")]
async fn torture_kill_nine_beside_mongodb() {
    let campaign = Campaign::begin("kill_nine_beside_mongodb");
    let Some(mongo) = servers::mongo().await else {
        return;
    };
    let Some(kafka) = Kafka::start().await else { return };
    let scene = MongoScene::new(mongo, &kafka, |config| config.lease_ms = 500).await;
    let mut rng = campaign.rng();
    let load = MongoLoad::start(&scene, campaign.seed());
    let other = scene.relay("other").await;
    let mut killed = 0;
    while campaign.goes_on(killed, 10) {
        let name = format!("victim-{killed}");
        let victim = scene.relay(&name).await;
        scene.holds_lanes(&name).await;
        scene.moves().await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await;
        victim.kill().await;
        killed += 1;
    }
    load.stop().await;
    scene.settled().await;
    assert_whole_in(&kafka, &scene.ledger).await;
    other.stop().await;
}

/// Shuts Kafka down and kills it under a relay; the outbox is in MongoDB.
#[tokio::test(flavor = "multi_thread")]
async fn torture_kafka_is_restarted_beside_mongodb() {
    let campaign = Campaign::begin("kafka_is_restarted_beside_mongodb");
    let Some(mongo) = servers::mongo().await else {
        return;
    };
    let Some(mut kafka) = Kafka::start().await else {
        return;
    };
    let scene = MongoScene::new(mongo, &kafka, |_| {}).await;
    let load = MongoLoad::start(&scene, campaign.seed());
    let relay = scene.relay("relay").await;
    scene.moves().await;
    kafka.restart().await;
    scene.moves().await;
    kafka.kill().await;
    kafka.start_again().await;
    scene.moves().await;
    while campaign.goes_on(0, 0) {
        kafka.restart().await;
        scene.moves().await;
    }
    load.stop().await;
    scene.settled().await;
    assert_whole_in(&kafka, &scene.ledger).await;
    scene.assert_nobody_was_charged().await;
    relay.stop().await;
}

/// Kills and restarts mongod under two relays.
#[tokio::test(flavor = "multi_thread")]
async fn torture_mongodb_is_restarted_under_load() {
    let campaign = Campaign::begin("mongodb_is_restarted_under_load");
    let Some(mut mongo) = Mongo::start().await else {
        return;
    };
    let Some(kafka) = Kafka::start().await else { return };
    let scene = MongoScene::new(&mongo, &kafka, |config| config.lease_ms = 1_000).await;
    let load = MongoLoad::start(&scene, campaign.seed());
    let relays = [scene.relay("one").await, scene.relay("two").await];
    scene.moves().await;
    mongo.stop(0).await;
    mongo.start_again(0).await;
    scene.moves().await;
    mongo.kill(0).await;
    mongo.start_again(0).await;
    scene.moves().await;
    while campaign.goes_on(0, 0) {
        mongo.kill(0).await;
        mongo.start_again(0).await;
        scene.moves().await;
    }
    load.stop().await;
    scene.settled().await;
    assert_whole_in(&kafka, &scene.ledger).await;
    for relay in relays {
        relay.stop().await;
    }
}

/// Kills the primary of three members, so that another one takes over.
#[tokio::test(flavor = "multi_thread")]
async fn torture_another_member_becomes_the_primary_under_load() {
    let campaign = Campaign::begin("another_member_becomes_the_primary_under_load");
    let options = MongoOptions {
        members: 3,
        ..MongoOptions::default()
    };
    let Some(mut mongo) = Mongo::start_with(options).await else {
        return;
    };
    let Some(kafka) = Kafka::start().await else { return };
    let scene = MongoScene::new(&mongo, &kafka, |config| config.lease_ms = 2_000).await;
    let load = MongoLoad::start(&scene, campaign.seed());
    let relay = scene.relay("relay").await;
    scene.moves().await;
    let mut killed = 0;
    while campaign.goes_on(killed, 2) {
        let primary = mongo.primary().await;
        mongo.kill(primary).await;
        mongo.primary().await;
        scene.moves().await;
        mongo.start_again(primary).await;
        killed += 1;
    }
    load.stop().await;
    scene.settled().await;
    assert_whole_in(&kafka, &scene.ledger).await;
    relay.stop().await;
}
