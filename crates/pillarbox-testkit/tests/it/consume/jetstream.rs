//! JetStream only: redelivery after a timeout.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::jetstream;
use pillarbox::consume::{ConsumeError, JetStream};
use pillarbox_testkit::{consumer::events, servers::Nats};

use super::harness::{consumer, effects, note, pool, publish_nats, stream, until};

/// How many deliveries of the group are not acknowledged, and how many are not delivered yet.
async fn unacknowledged(context: &jetstream::Context) -> (usize, u64) {
    let stream = context.get_stream("THINGS").await.unwrap();
    let info = stream.consumer_info("effects").await.unwrap();
    (info.num_ack_pending, info.num_pending)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_outlives_the_ack_wait_is_called_once_and_loses_nothing() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(6, 2, 10);
    publish_nats(&context, "THINGS.changed", &events).await;
    let pool = pool(&url).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let things = JetStream::new(context.clone(), "THINGS").ack_wait(Duration::from_millis(500));
    let running = consumer(&pool)
        .start_fn(things, move |event, context, tx| {
            let calls = called.clone();
            Box::pin(async move {
                calls.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1_200)).await;
                note(event, context, tx).await
            })
        })
        .await
        .unwrap();
    effects.reach(6).await;
    until("all is acknowledged", async || {
        unacknowledged(&context).await == (0, 0)
    })
    .await;
    effects.assert_whole(&events).await;
    assert_eq!(calls.load(Ordering::SeqCst), 6);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_loses_nothing_and_the_next_one_goes_on_at_once() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(3_000, 50, 11);
    publish_nats(&context, "THINGS.changed", &events).await;
    let pool = pool(&url).await;
    // Longer than the test may take: nothing here may wait for a redelivery.
    let things = JetStream::new(context.clone(), "THINGS").ack_wait(Duration::from_secs(300));
    for part in [300, 600, 900] {
        let running = consumer(&pool).start_fn(things.clone(), note).await.unwrap();
        effects.reach(part).await;
        running.stop().await.unwrap();
        let stopped = effects.count().await;
        assert!(stopped < 3_000, "it must be stopped before everything is done");
    }
    let running = consumer(&pool).start_fn(things, note).await.unwrap();
    effects.reach(3_000).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_cannot_work_does_not_start() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, _effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let pool = pool(&url).await;
    let refused = async |broker: JetStream| match consumer(&pool).start_fn(broker, note).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("the consumer must not start"),
    };
    let no_stream = refused(JetStream::new(context.clone(), "NOTHING")).await;
    assert!(no_stream.contains("NOTHING"), "{no_stream}");
    context
        .create_stream(jetstream::stream::Config {
            name: "WORK".into(),
            subjects: vec!["work".into()],
            retention: jetstream::stream::RetentionPolicy::WorkQueue,
            ..Default::default()
        })
        .await
        .unwrap();
    let queue = refused(JetStream::new(context.clone(), "WORK")).await;
    assert!(queue.contains("retention"), "{queue}");
    context
        .create_stream(jetstream::stream::Config {
            name: "SINGLE".into(),
            subjects: vec!["single".into()],
            ..Default::default()
        })
        .await
        .unwrap();
    let letters = refused(JetStream::new(context.clone(), "SINGLE").subject("single")).await;
    assert!(letters.contains("single.dead"), "{letters}");
    let letters = refused(JetStream::new(context.clone(), "SINGLE")).await;
    assert!(
        letters.contains("single.dead"),
        "also without a subject filter: {letters}"
    );
    let group = pillarbox::consume::Consumer::new("a.b", pool.clone())
        .start_fn(JetStream::new(context.clone(), "THINGS"), note)
        .await;
    assert!(matches!(group, Err(ConsumeError::Group { .. })));
    sqlx::raw_sql("drop table processed_events_attempts")
        .execute(&pool)
        .await
        .unwrap();
    let old = refused(JetStream::new(context.clone(), "THINGS")).await;
    assert!(
        old.contains("processed_events_attempts") && old.contains("pillarbox migrate --inbox"),
        "{old}"
    );
    consumer(&pool)
        .options(|options| options.deaths_max = 0)
        .start_fn(JetStream::new(context.clone(), "THINGS"), note)
        .await
        .unwrap()
        .stop()
        .await
        .unwrap();
    sqlx::raw_sql("drop table processed_events")
        .execute(&pool)
        .await
        .unwrap();
    let tables = refused(JetStream::new(context, "THINGS")).await;
    assert!(tables.contains("pillarbox migrate --inbox"), "{tables}");
}
