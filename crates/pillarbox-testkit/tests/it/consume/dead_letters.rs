//! Events that can't be processed.

use std::{collections::BTreeMap, time::Duration};

use async_nats::{HeaderMap, jetstream};
use futures::StreamExt;
use pillarbox::consume::{
    Consumer, Context, DeadLetters, HandlerError, Handling, JetStream, Kafka, Received,
};
use pillarbox_testkit::{
    consumer::{Effects, events},
    servers::{self, Nats},
};
use sqlx::{PgPool, Postgres, Transaction};

use super::harness::{
    Published, consumer, consumer_of, effects, kafka_config, note, pool, publish_kafka, publish_nats, stream,
    topics,
};

/// The third event of this key always fails, and its fifth is rejected at once.
const POISONED: &str = "k-0";

fn picky<'a>(
    event: &'a Received,
    context: &'a Context,
    tx: &'a mut Transaction<'static, Postgres>,
) -> Handling<'a> {
    Box::pin(async move {
        note(event, context, tx).await?;
        match (context.key.as_str(), event.aggregate_version) {
            (POISONED, Some(3)) => Err("it can't be stomached".into()),
            (POISONED, Some(5)) => Err(HandlerError::reject("it makes no sense")),
            _ => Ok(()),
        }
    })
}

fn picky_consumer(group: &str, pool: &PgPool) -> Consumer<PgPool> {
    consumer_of(group, pool).options(|options| options.attempts_max = 3)
}

/// Checks that two events died and all others had their effect, also those behind the dead ones.
async fn assert_the_rest_went_on(effects: &Effects, events: &[Published]) {
    let (alive, dead): (Vec<_>, Vec<_>) = events
        .iter()
        .cloned()
        .partition(|(_, key, version)| key != POISONED || ![3, 5].contains(version));
    assert_eq!(dead.len(), 2);
    effects.reach(alive.len() as i64).await;
    let (count, distinct): (i64, i64) =
        sqlx::query_as("select count(*), count(distinct event_id) from effects")
            .fetch_one(&effects.pool)
            .await
            .unwrap();
    assert_eq!((count, distinct), (alive.len() as i64, alive.len() as i64));
    let of_the_key: Vec<i64> = sqlx::query_scalar("select version from effects where key = $1 order by n")
        .bind(POISONED)
        .fetch_all(&effects.pool)
        .await
        .unwrap();
    let mut expected = of_the_key.clone();
    expected.sort_unstable();
    assert_eq!(of_the_key, expected, "the key must continue in order");
    let first_behind: i64 = sqlx::query_scalar("select n from effects where key = $1 and version = 4")
        .bind(POISONED)
        .fetch_one(&effects.pool)
        .await
        .unwrap();
    let others: i64 = sqlx::query_scalar("select count(*) from effects where key <> $1 and n < $2")
        .bind(POISONED)
        .bind(first_behind)
        .fetch_one(&effects.pool)
        .await
        .unwrap();
    assert!(others > 0, "other keys did not wait for the poisoned one");
}

fn assert_letters(letters: &[BTreeMap<String, String>], events: &[Published], group: &str, topic: &str) {
    assert_eq!(letters.len(), 2, "{letters:?}");
    for (letter, (version, reason, error, attempts)) in letters.iter().zip([
        (3, "max_retries_exceeded", "it can't be stomached", "3"),
        (5, "permanent_failure", "it makes no sense", "1"),
    ]) {
        let (id, ..) = events
            .iter()
            .find(|(_, key, v)| key == POISONED && *v == version)
            .unwrap();
        for (name, expected) in [
            ("Pillarbox-Id", id.to_string().as_str()),
            ("Pillarbox-Event-Type", "Changed"),
            ("Pillarbox-Dead-Reason", reason),
            ("Pillarbox-Dead-Error", error),
            ("Pillarbox-Dead-Attempts", attempts),
            ("Pillarbox-Dead-Group", group),
            ("Pillarbox-Dead-Topic", topic),
        ] {
            assert_eq!(
                letter.get(name).map(String::as_str),
                Some(expected),
                "{name} of {letter:?}"
            );
        }
    }
}

pub(super) async fn letters_of_nats(
    context: &jetstream::Context,
    subject: &str,
) -> Vec<BTreeMap<String, String>> {
    let stream = context.get_stream("THINGS").await.unwrap();
    let config = jetstream::consumer::pull::Config {
        filter_subject: subject.to_owned(),
        ..Default::default()
    };
    let consumer = stream.create_consumer(config).await.unwrap();
    let mut found = consumer.fetch().max_messages(100).messages().await.unwrap();
    let mut letters = Vec::new();
    while let Some(message) = found.next().await {
        let message = message.unwrap();
        let headers = message.headers.clone().unwrap();
        let text = |values: &Vec<async_nats::HeaderValue>| values[0].as_str().to_owned();
        letters.push(
            headers
                .iter()
                .map(|(name, values)| (name.to_string(), text(values)))
                .collect(),
        );
    }
    letters
}

#[tokio::test(flavor = "multi_thread")]
async fn on_jetstream_a_poisoned_event_goes_to_the_dead_letters_and_holds_back_only_its_key() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(300, 10, 20);
    publish_nats(&context, "THINGS.changed", &events).await;
    // A message that is not an event.
    context
        .publish("THINGS.changed", "nonsense".into())
        .await
        .unwrap()
        .await
        .unwrap();
    let pool = pool(&url).await;
    // The subject of the dead letters is one of the consumed subjects. The group skips its own letters.
    let things = JetStream::new(context.clone(), "THINGS");
    let running = picky_consumer("effects", &pool)
        .start_fn(things, picky)
        .await
        .unwrap();
    assert_the_rest_went_on(&effects, &events).await;
    running.stop().await.unwrap();
    let mut letters = letters_of_nats(&context, "THINGS.changed.dead").await;
    let unknown = letters
        .iter()
        .position(|letter| !letter.contains_key("Pillarbox-Id"))
        .unwrap();
    let unknown = letters.remove(unknown);
    assert_eq!(unknown["Pillarbox-Dead-Reason"], "poison_message");
    assert_letters(&letters, &events, "effects", "THINGS.changed");
    let double = letters_of_nats(&context, "THINGS.changed.dead.dead").await;
    assert!(double.is_empty(), "a letter died again: {double:?}");
}

/// To retry dead letters, another group consumes them: they are the same events.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_can_be_consumed_as_the_events_they_were() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(1, 1, 21);
    let mut headers = HeaderMap::new();
    for (name, text) in [
        ("Pillarbox-Event-Type", "Changed"),
        ("Pillarbox-Key", "k-0"),
        ("Pillarbox-Aggregate-Version", "1"),
    ] {
        headers.insert(name, text);
    }
    // As the relay publishes on NATS: the id is in the broker's own header.
    headers.insert("Nats-Msg-Id", events[0].0.to_string());
    context
        .publish_with_headers("THINGS.changed", headers, "{}".into())
        .await
        .unwrap()
        .await
        .unwrap();
    let pool = pool(&url).await;
    let all = JetStream::new(context.clone(), "THINGS").subject("THINGS.changed");
    let first = consumer(&pool)
        .start_fn(all, |_, _, _| {
            Box::pin(async { Err(HandlerError::reject("not today")) })
        })
        .await
        .unwrap();
    let dead = JetStream::new(context, "THINGS").subject("THINGS.*.dead");
    let second = Consumer::new("mended", pool.clone())
        .start_fn(dead, note)
        .await
        .unwrap();
    effects.reach(1).await;
    first.stop().await.unwrap();
    second.stop().await.unwrap();
    effects.assert_whole(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_kafka_a_poisoned_event_goes_to_the_dead_letters_and_holds_back_only_its_key() {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    topics(kafka, "picky", 2).await;
    let events = events(300, 10, 22);
    publish_kafka(&kafka.bootstrap(), "picky", &events).await;
    let pool = pool(&url).await;
    let broker = Kafka::new(kafka_config(&kafka.bootstrap()), ["picky"]);
    let running = picky_consumer("picky", &pool)
        .start_fn(broker, picky)
        .await
        .unwrap();
    assert_the_rest_went_on(&effects, &events).await;
    tokio::time::timeout(Duration::from_secs(20), running.stop())
        .await
        .unwrap()
        .unwrap();
    let letters = pillarbox_testkit::kafka::messages(&kafka.bootstrap(), "picky.dead").await;
    assert!(
        letters
            .iter()
            .all(|letter| letter.key.as_deref() == Some(POISONED) && letter.payload == b"{\"n\":1}")
    );
    let headers: Vec<_> = letters.into_iter().map(|letter| letter.headers).collect();
    assert_letters(&headers, &events, "picky", "picky");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_topic_for_its_dead_letters_a_consumer_of_kafka_does_not_start() {
    let Some(kafka) = servers::kafka().await else {
        return;
    };
    let Some((url, effects)) = effects().await else {
        return;
    };
    kafka.create_topic("letterless", 1).await;
    let pool = pool(&url).await;
    let run = async |consumer: Consumer<PgPool>| {
        let broker = Kafka::new(kafka_config(&kafka.bootstrap()), ["letterless"]);
        consumer.start_fn(broker, note).await
    };
    let refused = run(consumer_of("letterless", &pool)).await;
    let refused = refused.err().expect("the consumer must not start").to_string();
    assert!(
        refused.contains("letterless.dead") && refused.contains("Create it"),
        "{refused}"
    );
    let left: i64 = sqlx::query_scalar("select count(*) from processed_events_attempts")
        .fetch_one(&effects.pool)
        .await
        .unwrap();
    assert_eq!(left, 0, "a consumer that did not start must not count as dead");
    kafka.create_topic("graveyard", 1).await;
    let elsewhere = consumer_of("letterless", &pool)
        .options(|options| options.dead_letters = DeadLetters::To("graveyard".into()));
    run(elsewhere).await.unwrap().stop().await.unwrap();
}
