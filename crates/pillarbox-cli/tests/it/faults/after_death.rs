//! What happens to a key after one of its events died, for each setting of the route.

use async_nats::jetstream::{self, stream};
use pillarbox::{Event, Outbox};
use pillarbox_testkit::servers::Nats;
use serde_json::Value;

use super::harness::{Producer, STREAM, Scene, messages};

const PUBLISHED: &str = "select count(*) from outbox_events where status = 'published'";
const HELD: &str = "select count(*) from outbox_events where status = 'held'";
const DEAD: &str = "select count(*) from outbox_events where status = 'dead'";

/// A scene with a stream SMALL that refuses large events, and a route to it.
async fn scene(after_death: &str) -> Option<(Scene, Nats)> {
    let (scene, nats) = Scene::start(|config| {
        config.routes = format!(
            "[{{ topic: 'orders.>', sink: events, stream: {STREAM} }}, \
             {{ topic: 'small.>', sink: events, stream: SMALL, after_death: {after_death} }}]"
        );
    })
    .await?;
    context(&nats).await.create_stream(small(1_000)).await.unwrap();
    Some((scene, nats))
}

async fn context(nats: &Nats) -> jetstream::Context {
    jetstream::new(async_nats::connect(nats.url()).await.unwrap())
}

fn small(bytes_max: i32) -> stream::Config {
    stream::Config {
        name: "SMALL".to_owned(),
        subjects: vec!["small.>".to_owned()],
        max_message_size: bytes_max,
        ..Default::default()
    }
}

fn sized(bytes: usize) -> Event {
    Event::to("small.state")
        .event_type("Changed")
        .aggregate("order", "key")
        .payload(format!("\"{}\"", "x".repeat(bytes)))
}

async fn enqueue(producer: &Producer, events: &[Event]) {
    let mut tx = producer.begin().await;
    Outbox::default().enqueue_all(&mut tx, events).await.unwrap();
    tx.commit().await.unwrap();
}

/// Also when the relay is killed and another one starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_key_waits_for_a_person_and_other_keys_continue() {
    let Some((scene, nats)) = scene("block").await else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("first").await;
    enqueue(&producer, &[sized(5_000)]).await;
    producer.place("key", 3).await;
    producer.place("other", 3).await;
    scene.until(PUBLISHED, |events| events == 3).await;
    scene.until(HELD, |events| events == 3).await;
    relay.kill().await;
    let relay = scene.relay("second").await;
    producer.place("key", 1).await;
    producer.place("other", 1).await;
    scene.until(PUBLISHED, |events| events == 4).await;
    scene.until(HELD, |events| events == 4).await;
    let listed = scene.done(&["--json", "dead", "list", "--letters"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["letters"][0]["blocks_key"], true);

    // After the cause is fixed, the dead event goes first, then the others.
    context(&nats).await.update_stream(small(10_000)).await.unwrap();
    scene.done(&["dead", "replay", "--all", "--yes"]).await;
    scene.assert_whole().await;
    let (first, behind) = (
        messages(&scene.config.sink, "SMALL").await,
        messages(&scene.config.sink, STREAM).await,
    );
    let key = |message: &&jetstream::Message| {
        let headers = message.headers.as_ref().unwrap();
        headers.get("Pillarbox-Key").unwrap().as_str() == "key"
    };
    let behind = behind.iter().find(key).unwrap().info().unwrap().published;
    assert!(first[0].info().unwrap().published < behind);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_key_goes_on_when_its_dead_letter_is_discarded() {
    let Some((scene, _nats)) = scene("block").await else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    enqueue(&producer, &[sized(5_000)]).await;
    producer.place("key", 3).await;
    scene.until(HELD, |events| events == 3).await;
    scene
        .done(&["dead", "discard", "--all", "--yes", "--why", "a test"])
        .await;
    scene.settled().await;
    // From now on the key is delivered as before.
    producer.place("key", 3).await;
    scene.assert_whole().await;
    assert_eq!(scene.count(DEAD).await, 1);
    relay.stop().await;
}

/// Its topic can be read, and that is enough to block the key, also for events of the same page.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_read_blocks_its_key_too() {
    let Some((scene, _nats)) = scene("block").await else {
        return;
    };
    let producer = Producer::new(&scene);
    let broken =
        "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload, headers)
                  values ('small.state', 'Changed', 'order', 'key', '{}', '[1]')";
    producer.place("key", 1).await;
    sqlx::query(broken).execute(&scene.pool).await.unwrap();
    producer.place("key", 2).await;
    let relay = scene.relay("relay").await;
    scene.until(DEAD, |events| events == 1).await;
    scene.until(HELD, |events| events == 2).await;
    scene.until(PUBLISHED, |events| events == 1).await;
    // The cause is not fixed: it dies again, and the events behind it still wait.
    scene.done(&["dead", "replay", "--all", "--yes"]).await;
    let open = "select count(*) from outbox_events_dead where state = 'open'";
    scene.until(open, |letters| letters == 1).await;
    assert_eq!((scene.count(PUBLISHED).await, scene.count(HELD).await), (1, 2));
    scene
        .done(&["dead", "discard", "--all", "--yes", "--why", "a test"])
        .await;
    scene.assert_whole().await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_latest_is_enough_only_the_newest_goes_out() {
    let Some((scene, _nats)) = scene("latest").await else {
        return;
    };
    let producer = Producer::new(&scene);
    let states: Vec<Event> = [5_000, 10, 20, 30].map(sized).into();
    enqueue(&producer, &states).await;
    producer.place("key", 2).await;
    let relay = scene.relay("relay").await;
    scene.assert_whole().await;
    let arrived = messages(&scene.config.sink, "SMALL").await;
    let arrived: Vec<usize> = arrived.iter().map(|message| message.payload.len()).collect();
    assert_eq!(arrived, [32], "only the newest state may arrive");
    assert_eq!(scene.count(DEAD).await, 3);
    let open = "select count(*) from outbox_events_dead where state = 'open'";
    assert_eq!(
        scene.count(open).await,
        1,
        "only the letter of the failed event may be open"
    );
    relay.stop().await;
}
