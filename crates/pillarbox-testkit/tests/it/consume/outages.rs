//! The database, the broker or the network is away while events are consumed.

use std::time::Duration;

use async_nats::jetstream;
use pillarbox::consume::{JetStream, Kafka};
use pillarbox_testkit::{
    consumer::{Effects, events},
    proxy::{Fault, Proxy},
    servers::{self, Kafka as KafkaServer, Nats, Postgres, PostgresOptions},
};

use super::harness::{
    consumer, consumer_of, effects, kafka_config, note, pool, publish_kafka, publish_nats, stream, topics,
    until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_costs_no_attempt_and_loses_nothing() {
    let Some(nats) = Nats::start().await else { return };
    let Some(mut postgres) = Postgres::start(PostgresOptions::default()).await else {
        return;
    };
    let url = postgres.database().await;
    let effects = Effects::create(&url).await;
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(6_000, 50, 30);
    publish_nats(&context, "THINGS.changed", &events).await;
    // With one attempt, every event that is charged for the outage would become a dead letter.
    let consumer = consumer(&pool(&url).await).options(|options| options.attempts_max = 1);
    let running = consumer
        .start_fn(JetStream::new(context.clone(), "THINGS"), note)
        .await
        .unwrap();
    effects.reach(500).await;
    postgres.kill().await;
    until("the lag says that the database is away", async || {
        running.lag().database_away
    })
    .await;
    postgres.start_again().await;
    until("it is back", async || {
        sqlx::query("select 1").execute(&effects.pool).await.is_ok()
    })
    .await;
    effects.reach(6_000).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
    let stream = context.get_stream("THINGS").await.unwrap();
    assert_eq!(
        stream.cached_info().state.messages,
        6_000,
        "there must be no dead letters"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jetstream_that_is_killed_and_comes_back_loses_nothing() {
    let Some(mut nats) = Nats::start().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(8_000, 50, 31);
    publish_nats(&context, "THINGS.changed", &events[..6_000]).await;
    let pool = pool(&url).await;
    let things = JetStream::new(context.clone(), "THINGS").ack_wait(Duration::from_secs(2));
    let running = consumer(&pool).start_fn(things, note).await.unwrap();
    effects.reach(500).await;
    nats.kill().await;
    nats.start_again().await;
    let again = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    publish_nats(&again, "THINGS.changed", &events[6_000..]).await;
    effects.reach(8_000).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_jetstream_is_away_takes_no_longer_than_it_may() {
    let Some(mut nats) = Nats::start().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(100, 10, 36);
    publish_nats(&context, "THINGS.changed", &events).await;
    let pool = pool(&url).await;
    let consumer = consumer(&pool).options(|options| options.shutdown_timeout = Duration::from_secs(2));
    let running = consumer
        .start_fn(JetStream::new(context, "THINGS"), note)
        .await
        .unwrap();
    effects.reach(100).await;
    nats.kill().await;
    tokio::time::timeout(Duration::from_secs(5), running.stop())
        .await
        .expect("`stop` must end within its timeout of two seconds")
        .unwrap();
}

/// Deliveries are lost, connections break, acknowledgements are lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_network_to_jetstream_loses_nothing_and_keeps_the_order() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(8_000, 50, 32);
    let proxy = Proxy::in_front_of(&nats.url()).await;
    let far = async_nats::ConnectOptions::new()
        .ping_interval(Duration::from_millis(500))
        .connect(proxy.through(&nats.url()))
        .await
        .unwrap();
    let pool = pool(&url).await;
    let things = JetStream::new(jetstream::new(far), "THINGS").ack_wait(Duration::from_secs(1));
    let running = consumer(&pool).start_fn(things, note).await.unwrap();
    let publishing = async {
        for part in events.chunks(1_000) {
            publish_nats(&context, "THINGS.changed", part).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let breaking = async {
        for (part, fault) in [
            (500, Fault::Reset),
            (1_500, Fault::DropReplies),
            (3_000, Fault::BlackHole),
            (4_500, Fault::Reset),
        ] {
            effects.reach(part).await;
            proxy.set(fault).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            // Data that was dropped must stay lost, so the connection ends with the fault.
            proxy.set(Fault::Reset).await;
            proxy.set(Fault::Pass).await;
        }
    };
    tokio::join!(publishing, breaking);
    effects.reach(8_000).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
}

/// A client that can't keep up drops deliveries, although its connection stays open.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_delivery_is_read_again_before_later_ones() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(2_000, 20, 35);
    publish_nats(&context, "THINGS.changed", &events).await;
    let narrow = async_nats::ConnectOptions::new()
        .subscription_capacity(32)
        .connect(nats.url())
        .await
        .unwrap();
    let pool = pool(&url).await;
    let things = JetStream::new(jetstream::new(narrow), "THINGS").ack_wait(Duration::from_secs(1));
    let running = consumer(&pool).start_fn(things, note).await.unwrap();
    effects.reach(2_000).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_that_is_killed_and_comes_back_loses_nothing() {
    let Some(mut kafka) = KafkaServer::start().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    topics(&kafka, "things", 3).await;
    let events = events(6_000, 50, 33);
    publish_kafka(&kafka.bootstrap(), "things", &events[..4_000]).await;
    let pool = pool(&url).await;
    let broker = Kafka::new(kafka_config(&kafka.bootstrap()), ["things"]);
    let running = consumer(&pool).start_fn(broker, note).await.unwrap();
    effects.reach(500).await;
    kafka.kill().await;
    kafka.start_again().await;
    publish_kafka(&kafka.bootstrap(), "things", &events[4_000..]).await;
    effects.reach(6_000).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
}

/// The events behind a failing key fill the memory limit. Then nothing more is read until that key has
/// finished.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_while_a_key_fails_and_everything_goes_on_afterwards() {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    topics(kafka, "bounded", 2).await;
    let events = events(2_000, 2, 34);
    publish_kafka(&kafka.bootstrap(), "bounded", &events).await;
    let pool = pool(&url).await;
    let consumer = consumer_of("bounded", &pool).options(|options| {
        options.held_events_max = 100;
        options.attempts_max = 1_000_000;
    });
    let (mend, mended) = tokio::sync::watch::channel(false);
    let broker = Kafka::new(kafka_config(&kafka.bootstrap()), ["bounded"]);
    let running = consumer
        .start_fn(broker, move |event, context, tx| {
            let broken = !*mended.borrow() && context.key == "k-0";
            Box::pin(async move {
                note(event, context, tx).await?;
                if broken { Err("not yet".into()) } else { Ok(()) }
            })
        })
        .await
        .unwrap();
    until("the memory is full of waiting events", async || {
        let lag = running.lag();
        lag.held >= 99 && lag.failing == 1
    })
    .await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let held = running.lag().held;
        assert!(held <= 102, "{held} events are held; 100 are allowed");
    }
    mend.send(true).unwrap();
    effects.reach(2_000).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
}
