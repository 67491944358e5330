//! A stream or topic that is deleted and created again under a running consumer.

use std::time::Duration;

use pillarbox::consume::{JetStream, Kafka};
use pillarbox_testkit::{
    consumer::events,
    servers::{self, Nats},
};
use rdkafka::{admin::AdminClient, client::DefaultClientContext};

use super::harness::{
    consumer, consumer_of, effects, kafka_config, note, pool, publish_kafka, publish_nats, stream, topics,
    until,
};

/// Sequences start again: new messages have the numbers of old ones and must not be mistaken for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_made_anew_is_read_from_its_beginning() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(900, 20, 70);
    publish_nats(&context, "THINGS.changed", &events[..500]).await;
    let pool = pool(&url).await;
    let things = JetStream::new(context.clone(), "THINGS").ack_wait(Duration::from_secs(1));
    let running = consumer(&pool).start_fn(things, note).await.unwrap();
    effects.reach(500).await;
    context.delete_stream("THINGS").await.unwrap();
    // First fewer messages than were read, and later more.
    stream(&nats.url(), "THINGS").await;
    publish_nats(&context, "THINGS.changed", &events[500..600]).await;
    effects.reach(600).await;
    context.delete_stream("THINGS").await.unwrap();
    stream(&nats.url(), "THINGS").await;
    publish_nats(&context, "THINGS.changed", &events[600..]).await;
    effects.reach(900).await;
    effects.assert_whole(&events).await;
    // Exactly the processed events are acknowledged.
    until("all is acknowledged", async || {
        let stream = context.get_stream("THINGS").await.unwrap();
        let info = stream.consumer_info("effects").await;
        info.is_ok_and(|info| info.ack_floor.stream_sequence == 300)
    })
    .await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_made_anew_is_read_from_its_beginning() {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    topics(kafka, "renewed", 2).await;
    let events = events(600, 20, 71);
    publish_kafka(&kafka.bootstrap(), "renewed", &events[..500]).await;
    let pool = pool(&url).await;
    let mut config = kafka_config(&kafka.bootstrap());
    config.set("topic.metadata.refresh.interval.ms", "500");
    let broker = Kafka::new(config, ["renewed"]);
    let running = consumer_of("renewed", &pool)
        .start_fn(broker, note)
        .await
        .unwrap();
    effects.reach(500).await;
    let admin: AdminClient<DefaultClientContext> = kafka_config(&kafka.bootstrap()).create().unwrap();
    for deleted in admin
        .delete_topics(&["renewed"], &Default::default())
        .await
        .unwrap()
    {
        deleted.unwrap();
    }
    kafka.create_topic("renewed", 2).await;
    publish_kafka(&kafka.bootstrap(), "renewed", &events[500..]).await;
    effects.reach(600).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
}
