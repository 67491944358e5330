//! Several instances of one group.

use std::time::Duration;

use pillarbox::consume::{JetStream, Kafka};
use pillarbox_testkit::{
    consumer::events,
    servers::{self, Nats},
};

use super::harness::{
    consumer, consumer_of, effects, kafka_config, note, pool, publish_kafka, publish_nats, stream, topics,
};

const EVENTS: i64 = 8_000;

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_kafka_group_that_join_and_leave_under_load_lose_nothing_and_keep_the_order() {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    topics(kafka, "shared", 6).await;
    let events = events(EVENTS as usize, 60, 40);
    let bootstrap = kafka.bootstrap();
    let pool = pool(&url).await;
    let member = async || {
        let broker = Kafka::new(kafka_config(&bootstrap), ["shared"]);
        consumer_of("shared", &pool)
            .start_fn(broker, |event, context, tx| {
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    note(event, context, tx).await
                })
            })
            .await
            .unwrap()
    };
    let coming_and_going = async {
        let first = member().await;
        effects.reach(EVENTS / 8).await;
        let second = member().await;
        effects.reach(EVENTS / 4).await;
        let third = member().await;
        effects.reach(EVENTS / 2).await;
        first.stop().await.unwrap();
        effects.reach(EVENTS * 3 / 4).await;
        third.stop().await.unwrap();
        effects.reach(EVENTS).await;
        second.stop().await.unwrap();
    };
    tokio::join!(publish_kafka(&bootstrap, "shared", &events), coming_and_going);
    effects.assert_whole(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_on_one_stream_apply_each_event_once_and_keep_the_order() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(EVENTS as usize, 30, 41);
    let pool = pool(&url).await;
    let instance = async || {
        let things = JetStream::new(context.clone(), "THINGS").ack_wait(Duration::from_secs(1));
        consumer(&pool)
            .options(|options| options.concurrency = 8)
            .start_fn(things, note)
            .await
            .unwrap()
    };
    let coming_and_going = async {
        let first = instance().await;
        let second = instance().await;
        effects.reach(EVENTS / 2).await;
        first.stop().await.unwrap();
        let third = instance().await;
        effects.reach(EVENTS).await;
        second.stop().await.unwrap();
        third.stop().await.unwrap();
    };
    tokio::join!(
        publish_nats(&context, "THINGS.changed", &events),
        coming_and_going
    );
    effects.assert_whole(&events).await;
}
