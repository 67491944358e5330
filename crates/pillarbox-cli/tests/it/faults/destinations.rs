//! A stream or topic that accepts nothing, beside others that do. Its events wait and are not charged,
//! because nothing is wrong with them. No other event waits.

use async_nats::jetstream::{self, Context, stream};
use pillarbox::{Event, Outbox};
use pillarbox_testkit::{wait::until, webhooks::Receiver};
use serde_json::{Value, json};

use super::harness::{Scene, healthz_until, messages};

const WAITING: &str = "select count(*) from outbox_events where status not in ('published', 'dead')";
const CHARGED: &str = "select count(*) from outbox_events where attempts <> 0 or status = 'dead'";

async fn jetstream(url: &str) -> Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

fn stream(name: &str, subject: &str) -> stream::Config {
    stream::Config {
        name: name.into(),
        subjects: vec![subject.into()],
        ..stream::Config::default()
    }
}

/// Writes `count` events of this topic, each with its own key.
async fn write(scene: &Scene, topic: &str, count: usize) {
    let event = |n: usize| {
        Event::to(topic)
            .event_type("Placed")
            .aggregate("order", format!("{topic}-{n}"))
            .json(&json!({ "n": n }))
            .unwrap()
    };
    let events: Vec<Event> = (0..count).map(event).collect();
    let mut tx = scene.pool.begin().await.unwrap();
    Outbox::default().enqueue_all(&mut tx, &events).await.unwrap();
    tx.commit().await.unwrap();
}

async fn waiting_of(scene: &Scene, topic: &str, wanted: impl Fn(i64) -> bool) {
    let sql = format!("{WAITING} and topic = '{topic}'");
    scene.until(&sql, wanted).await;
}

/// The troubles that `status` shows.
async fn troubles(scene: &Scene) -> String {
    let status: Value = serde_json::from_str(&scene.done(&["--json", "status"]).await).unwrap();
    let relays = status["relays"].as_array().unwrap();
    relays.iter().map(|relay| relay["troubles"].to_string()).collect()
}

/// Waits until people are notified of the paused destination.
async fn told(people: &Receiver, kind: &str) {
    let about = |notice: &Value| notice["data"]["what"] == "events/S2 two.placed" && notice["type"] == kind;
    until(kind, async || {
        people.requests().iter().any(|notice| about(&notice.json()))
    })
    .await;
}

/// Waits until `status` shows this. The relay writes its state to the database once a second.
async fn status_names(scene: &Scene, words: &str) {
    until(words, async || troubles(scene).await.contains(words)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_stream_stops_no_other_stream_of_its_sink() {
    let people = Receiver::start();
    let Some((scene, mut nats)) = Scene::start(|config| {
        config.routes =
            "[{ topic: 'one.>', sink: events, stream: S1 }, { topic: 'two.>', sink: events, stream: S2 }]"
                .into();
        config.streams = "[{ name: S1, subjects: ['one.>'] }, { name: S2, subjects: ['two.>'] }]".into();
        config.dlq = format!(
            "{{ dlq_notification_enabled: true, notifications: {{ trouble_wait_seconds: 2, webhooks: \
             [{{ url: 'http://127.0.0.1:{}/', secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' }}] }} }}",
            people.port()
        );
    })
    .await
    else {
        return;
    };
    let (mut relay, address) = scene.serving("relay").await;
    jetstream(&nats.url()).await.delete_stream("S2").await.unwrap();
    write(&scene, "two.placed", 3).await;
    relay.says("the destination accepts nothing: pausing it").await;
    write(&scene, "one.placed", 3).await;
    waiting_of(&scene, "one.placed", |waiting| waiting == 0).await;
    // If the sink was away too, it is up again as soon as it can be reached.
    nats.restart().await;
    write(&scene, "one.placed.later", 3).await;
    waiting_of(&scene, "one.placed.later", |waiting| waiting == 0).await;
    status_names(&scene, "S2 two.placed").await;
    let paused = |body: &Value| body["paused"].as_object().is_some_and(|paused| paused.len() == 1);
    let health = healthz_until(&address, |code, body| code == 503 && paused(body)).await;
    assert!(health["paused"].to_string().contains("S2 two.placed"), "{health}");
    told(&people, "pillarbox.trouble.opened").await;
    assert_eq!(scene.count(CHARGED).await, 0, "an outage must charge no event");

    let context = jetstream(&nats.url()).await;
    context.create_stream(stream("S2", "two.>")).await.unwrap();
    waiting_of(&scene, "two.placed", |waiting| waiting == 0).await;
    assert_eq!(messages(&scene.config.sink, "S2").await.len(), 3);
    assert_eq!(scene.count(CHARGED).await, 0);
    healthz_until(&address, |code, _| code == 200).await;
    told(&people, "pillarbox.trouble.recovered").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_starts_although_one_of_its_streams_is_missing() {
    let Some((scene, nats)) = Scene::start(|config| {
        config.routes =
            "[{ topic: 'one.>', sink: events, stream: S1 }, { topic: 'two.>', sink: events, stream: S2 }]"
                .into();
        config.streams = "[{ name: S1, subjects: ['one.>'] }, { name: S2, subjects: ['two.>'] }]".into();
    })
    .await
    else {
        return;
    };
    jetstream(&nats.url()).await.delete_stream("S2").await.unwrap();
    let mut relay = scene.spawn("relay");
    relay.says("has no stream or topic S2").await;
    write(&scene, "one.placed", 1).await;
    waiting_of(&scene, "one.placed", |waiting| waiting == 0).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_kills_no_event_and_is_filled_again_when_there_is_room() {
    let Some((scene, nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let context = jetstream(&nats.url()).await;
    let small = stream::Config {
        max_messages: 5,
        discard: stream::DiscardPolicy::New,
        duplicate_window: std::time::Duration::from_secs(120),
        ..stream(super::harness::STREAM, "orders.>")
    };
    context.update_stream(&small).await.unwrap();
    let mut relay = scene.relay("relay").await;
    write(&scene, "orders.placed", 50).await;
    relay.says("the destination accepts nothing: pausing it").await;
    status_names(&scene, "maximum messages exceeded").await;
    // Wait until its events are in the side table. From there one is tried now and then.
    scene
        .until("select count(*) from outbox_events_parked", |parked| parked >= 40)
        .await;
    assert_eq!(
        scene.count(CHARGED).await,
        0,
        "events of a paused destination must not be charged"
    );

    let large = stream::Config {
        max_messages: -1,
        ..small
    };
    context.update_stream(&large).await.unwrap();
    scene.settled().await;
    assert_eq!(scene.count(CHARGED).await, 0);
    assert_eq!(
        messages(&scene.config.sink, super::harness::STREAM).await.len(),
        50
    );
    relay.stop().await;
}
