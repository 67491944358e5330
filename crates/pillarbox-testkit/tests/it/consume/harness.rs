//! Publishes events as the relay does, without a relay.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream};
use pillarbox::EventId;
use pillarbox::consume::{Consumer, Context, Handling, Received};
pub(super) use pillarbox_testkit::wait::until;
use pillarbox_testkit::{consumer::Effects, servers};
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use sqlx::{PgPool, Postgres, Transaction, postgres::PgPoolOptions};

pub(super) type Published = (EventId, String, i64);

/// A new database with the inbox and the table of effects. The server will not crash, so commits don't wait
/// for its disk.
pub(super) async fn effects() -> Option<(String, Effects)> {
    let url = servers::postgres().await?.database().await;
    let effects = Effects::create(&url).await;
    let name = url.rsplit('/').next().unwrap();
    let sql = format!("alter database {name} set synchronous_commit = off");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&effects.pool)
        .await
        .unwrap();
    Some((url, effects))
}

fn fields((id, key, version): &Published) -> [(&'static str, String); 7] {
    [
        ("Pillarbox-Id", id.to_string()),
        ("Pillarbox-Event-Type", "Changed".to_owned()),
        ("Pillarbox-Schema-Version", "1".to_owned()),
        ("Pillarbox-Aggregate-Type", "thing".to_owned()),
        ("Pillarbox-Aggregate-Id", key.clone()),
        ("Pillarbox-Aggregate-Version", version.to_string()),
        ("Pillarbox-Key", key.clone()),
    ]
}

/// The headers that the relay writes, without the id by which the broker finds copies.
pub(super) fn headers(event: &Published) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, text) in fields(event) {
        headers.insert(name, text);
    }
    headers
}

/// Creates the stream `name` with the subjects `name.>`.
pub(super) async fn stream(url: &str, name: &str) -> jetstream::Context {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    let config = jetstream::stream::Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    context
}

/// Publishes in order, some hundred events at a time.
pub(super) async fn publish_nats(context: &jetstream::Context, subject: &str, events: &[Published]) {
    for events in events.chunks(500) {
        let mut acknowledgements = Vec::with_capacity(events.len());
        for event in events {
            let mut headers = headers(event);
            headers.insert("Nats-Msg-Id", event.0.to_string());
            let sent = context.publish_with_headers(subject.to_owned(), headers, "{\"n\":1}".into());
            acknowledgements.push(sent.await.unwrap());
        }
        for acknowledgement in acknowledgements {
            acknowledgement.await.unwrap();
        }
    }
}

pub(super) async fn publish_kafka(bootstrap: &str, topic: &str, events: &[Published]) {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .create()
        .unwrap();
    for events in events.chunks(1_000) {
        let sent: Vec<_> = events
            .iter()
            .map(|event| {
                let fields = fields(event).into_iter();
                let headers = fields.fold(OwnedHeaders::new(), |headers, (name, text)| {
                    headers.insert(Header {
                        key: name,
                        value: Some(&text),
                    })
                });
                let record = FutureRecord::to(topic)
                    .key(&event.1)
                    .payload("{\"n\":1}")
                    .headers(headers);
                producer.send_result(record).map_err(|(error, _)| error).unwrap()
            })
            .collect();
        for sent in sent {
            sent.await.unwrap().map_err(|(error, _)| error).unwrap();
        }
        // A pause, so that events are published while others are consumed.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(super) async fn pool(url: &str) -> PgPool {
    PgPoolOptions::new()
        .max_connections(20)
        .acquire_timeout(Duration::from_secs(3))
        .connect(url)
        .await
        .unwrap()
}

/// A consumer with short waits.
pub(super) fn consumer(pool: &PgPool) -> Consumer<PgPool> {
    consumer_of("effects", pool)
}

/// The same as another group. On a shared broker each test needs its own group; otherwise they would
/// rebalance each other.
pub(super) fn consumer_of(group: &str, pool: &PgPool) -> Consumer<PgPool> {
    Consumer::new(group, pool.clone()).options(|options| {
        options.backoff_base = Duration::from_millis(20);
        options.backoff_max = Duration::from_millis(100);
        options.shutdown_timeout = Duration::from_secs(10);
    })
}

/// Writes the event to the effects.
pub(super) fn note<'a>(
    event: &'a Received,
    context: &'a Context,
    tx: &'a mut Transaction<'static, Postgres>,
) -> Handling<'a> {
    Box::pin(async move {
        sqlx::query("insert into effects (key, version, event_id) values ($1, $2, $3)")
            .bind(&context.key)
            .bind(event.aggregate_version)
            .bind(event.id.clone())
            .execute(&mut **tx)
            .await?;
        Ok(())
    })
}

/// Creates a topic and the topic of its dead letters.
pub(super) async fn topics(kafka: &servers::Kafka, name: &str, partitions: i32) {
    kafka.create_topic(name, partitions).await;
    kafka.create_topic(&format!("{name}.dead"), 1).await;
}

pub(super) fn kafka_config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "500");
    config
}
