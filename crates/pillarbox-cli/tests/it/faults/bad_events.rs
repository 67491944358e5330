//! Events that can't be delivered, or not yet.

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use pillarbox::{Event, Outbox};
use sqlx::{AssertSqlSafe, Executor};

use super::harness::{Producer, STREAM, Scene, event, messages};

/// Writes an event that is not in the ledger, because it must not arrive in the same stream as the others.
async fn enqueue(producer: &Producer, event: &Event) {
    let mut tx = producer.begin().await;
    Outbox::default().enqueue(&mut tx, event).await.unwrap();
    tx.commit().await.unwrap();
}

/// The dead letters, oldest first: key, reason, error, attempts.
async fn dead(scene: &Scene) -> Vec<(String, String, String, i32)> {
    let letters = sqlx::query_as("select key, reason, error, attempts from outbox_events_dead order by seq")
        .fetch_all(&scene.pool)
        .await
        .unwrap();
    let said = "select count(*) from outbox_events e left join outbox_events_dead d using (seq)
                where (e.status = 'dead') is distinct from (d.error = e.last_error)
                  and (e.status = 'dead' or d.seq is not null)";
    assert_eq!(
        scene.count(said).await,
        0,
        "the table and the dead letters must agree"
    );
    letters
}

fn key_of(message: &jetstream::Message) -> &str {
    let headers = message.headers.as_ref().unwrap();
    headers.get("Pillarbox-Key").unwrap().as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_row_that_cannot_be_read_is_dead_with_its_reason_and_holds_up_nothing() {
    let Some((scene, _nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let producer = Producer::new(&scene);
    scene
        .pool
        .execute("alter domain outbox_events_json drop constraint is_json")
        .await
        .unwrap();
    let relay = scene.relay("relay").await;
    for (topic, payload, headers) in [
        ("orders.placed", "{broken", "{}"),
        ("orders.placed", "{}", "[1]"),
        ("", "{}", "{}"),
    ] {
        producer.place("key", 2).await;
        let corrupt = format!(
            "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload, headers)
             values ('{topic}', 'Placed', 'order', 'key', '{payload}', '{headers}')"
        );
        scene.pool.execute(AssertSqlSafe(corrupt)).await.unwrap();
        producer.place("key", 2).await;
        producer.place("other", 1).await;
    }
    scene.assert_whole().await;
    let letters = dead(&scene).await;
    assert_eq!(letters.len(), 3, "{letters:?}");
    for ((key, reason, error, _), named) in letters.iter().zip(["payload", "headers", "topic"]) {
        assert_eq!((key.as_str(), reason.as_str()), ("key", "poison_message"));
        assert!(error.contains(named), "{error} does not name the {named}");
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_route_or_too_large_for_nats_dies_and_its_key_continues() {
    let Some((scene, nats)) = Scene::start(|config| {
        config.routes = format!(
            "[{{ topic: 'orders.>', sink: events, stream: {STREAM} }}, {{ topic: 'small.>', sink: events, stream: SMALL }}]"
        );
    })
    .await
    else {
        return;
    };
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let small = stream::Config {
        name: "SMALL".to_owned(),
        subjects: vec!["small.>".to_owned()],
        max_message_size: 1_000,
        ..Default::default()
    };
    context.create_stream(small).await.unwrap();
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    let sized = |topic: &str, bytes: usize| {
        Event::to(topic)
            .event_type("Placed")
            .aggregate("order", "key")
            .payload(format!("\"{}\"", "x".repeat(bytes - 2)))
    };
    // The payload is within the outbox's limit and just under the server's. With its headers it is over the
    // server's limit.
    let server_max = context.client().server_info().max_payload;
    producer.place("key", 2).await;
    enqueue(
        &producer,
        &Event::to("elsewhere.placed")
            .event_type("Placed")
            .aggregate("order", "key"),
    )
    .await;
    producer.place("key", 2).await;
    enqueue(&producer, &sized("orders.placed", server_max - 10)).await;
    producer.place("key", 2).await;
    enqueue(&producer, &sized("small.placed", 5_000)).await;
    producer.place("key", 2).await;
    scene.assert_whole().await;

    let letters = dead(&scene).await;
    assert_eq!(letters.len(), 3, "{letters:?}");
    let too_large = [(server_max - 10).to_string(), server_max.to_string()];
    let named: [&[&str]; 3] = [
        &["elsewhere.placed", "route"],
        &[&too_large[0], &too_large[1]],
        &["SMALL", "5000"],
    ];
    for ((key, reason, error, _), named) in letters.iter().zip(named) {
        assert_eq!((key.as_str(), reason.as_str()), ("key", "permanent_failure"));
        for words in named {
            assert!(error.contains(words), "`{words}` is not in: {error}");
        }
    }
    relay.stop().await;
}

/// The stream of one topic is missing. Its event is retried. Later events of its key wait, whatever their
/// topic. All other keys continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_event_holds_back_only_its_key_and_the_key_goes_on_in_order() {
    let Some((scene, nats)) = Scene::start(|config| {
        config.routes = format!(
            "[{{ topic: 'orders.>', sink: events, stream: {STREAM} }}, {{ topic: 'late.>', sink: events, stream: LATE }}]"
        );
    })
    .await
    else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    let bad: Vec<Event> = (1..=2)
        .map(|n| {
            let mut event = event("bad", n);
            event.topic = "late.placed".to_owned();
            event
        })
        .collect();
    enqueue(&producer, &bad[0]).await;
    producer.place("bad", 3).await;
    enqueue(&producer, &bad[1]).await;
    for n in 0..20 {
        producer.place(&format!("key-{n}"), 2).await;
    }
    let published = "select count(*) from outbox_events where status = 'published'";
    scene.until(published, |events| events == 40).await;
    // The event waits in the side table and is not charged. Others of its key wait behind it.
    let waits = "select count(*) from outbox_events where status = 'failed' and attempts = 0";
    scene.until(waits, |events| events == 1).await;
    let held = "select count(*) from outbox_events where status = 'held' and attempts = 0";
    scene.until(held, |events| events == 4).await;
    // Events that are written after the key began to fail wait too.
    producer.place("bad", 2).await;
    producer.place("key-0", 2).await;
    scene.until(published, |events| events == 42).await;
    scene.until(held, |events| events == 6).await;
    let stored = messages(&scene.config.sink, STREAM).await;
    assert_eq!(stored.len(), 42, "no event of the bad key may be stored");

    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let late = stream::Config {
        name: "LATE".to_owned(),
        subjects: vec!["late.>".to_owned()],
        ..Default::default()
    };
    context.create_stream(late).await.unwrap();
    scene.assert_whole().await;
    let times = |messages: Vec<jetstream::Message>| -> Vec<_> {
        messages
            .iter()
            .filter(|message| key_of(message) == "bad")
            .map(|message| message.info().unwrap().published)
            .collect()
    };
    let around = times(messages(&scene.config.sink, "LATE").await);
    let between = times(messages(&scene.config.sink, STREAM).await);
    assert_eq!((around.len(), between.len()), (2, 5));
    assert!(
        around[0] < between[0] && between[2] < around[1] && around[1] < between[3],
        "the order of the key must hold across streams: {around:?} around {between:?}"
    );
    assert!(dead(&scene).await.is_empty());
    relay.stop().await;
}

/// A relay finds the events that another one has parked.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_failed_is_tried_again_by_the_relay_that_takes_over() {
    let Some((scene, nats)) = Scene::start(|config| {
        config.lease_ms = 500;
        config.routes = "[{ topic: 'orders.>', sink: events }]".to_owned();
        config.streams = format!("[{{ name: {STREAM}, subjects: ['orders.placed'] }}]");
    })
    .await
    else {
        return;
    };
    let producer = Producer::new(&scene);
    let first = scene.relay("first").await;
    let mut bad = event("bad", 0);
    bad.topic = "orders.unbound".to_owned();
    enqueue(&producer, &bad).await;
    producer.place("bad", 5).await;
    producer.place("good", 5).await;
    scene
        .until(
            "select count(*) from outbox_events where status = 'held'",
            |held| held == 5,
        )
        .await;
    first.kill().await;
    let second = scene.relay("second").await;
    producer.place("bad", 2).await;
    let held = "select count(*) from outbox_events where status = 'held'";
    scene.until(held, |events| events == 7).await;
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let bound = stream::Config {
        name: "UNBOUND".to_owned(),
        subjects: vec!["orders.unbound".to_owned()],
        duplicate_window: Duration::from_secs(60),
        ..Default::default()
    };
    context.create_stream(bound).await.unwrap();
    scene.assert_whole().await;
    let unbound = messages(&scene.config.sink, "UNBOUND").await;
    let first_behind = messages(&scene.config.sink, STREAM)
        .await
        .into_iter()
        .find(|message| key_of(message) == "bad")
        .unwrap();
    assert_eq!(unbound.len(), 1);
    assert!(unbound[0].info().unwrap().published < first_behind.info().unwrap().published);
    second.stop().await;
}
