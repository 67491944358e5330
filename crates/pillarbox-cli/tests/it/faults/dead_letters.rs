//! Many events die of a few causes; a person looks, fixes and replays.

use std::collections::HashMap;

use async_nats::jetstream::{self, stream};
use pillarbox_testkit::torture::Campaign;
use serde_json::Value;
use sqlx::Executor;

use super::harness::{STREAM, Scene, messages};

const KEYS: i64 = 50;

/// Writes events of `KEYS` keys in one transaction. Each payload says the event's place in its key.
async fn write(scene: &Scene, topic: &str, payload: &str, count: i64) {
    let sql = format!(
        "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload, max_attempts)
         select $1, 'Placed', 'order', 'key-' || n % {KEYS}, replace($2, '$n', (n / {KEYS})::text), 1
         from generate_series(0, $3 - 1) n"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(topic)
        .bind(payload)
        .bind(count)
        .execute(&scene.pool)
        .await
        .unwrap();
}

async fn json(scene: &Scene, arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = [&["--json"], arguments].concat();
    serde_json::from_str(&scene.done(&arguments).await).unwrap()
}

async fn groups(scene: &Scene) -> Vec<(i64, String, String)> {
    let listed = json(scene, &["dead", "list"]).await;
    let groups = listed["groups"].as_array().unwrap().iter();
    groups
        .map(|group| {
            let text = |name: &str| group[name].as_str().unwrap().to_owned();
            (
                group["count"].as_i64().unwrap(),
                text("reason"),
                text("fingerprint"),
            )
        })
        .collect()
}

/// 10,000 dead letters of three causes form three groups; one is fixed and delivered in order.
///
/// It runs once, whatever the budget.
#[tokio::test(flavor = "multi_thread")]
async fn torture_dead_letters_are_grouped_and_mended() {
    let _campaign = Campaign::begin("dead_letters_are_grouped_and_mended");
    let Some((scene, nats)) = Scene::start(|config| {
        config.destination_outage_max_seconds = 1;
        config.routes = format!(
            "[{{ topic: 'orders.>', sink: events, stream: {STREAM} }}, {{ topic: 'late.>', sink: events, stream: LATE }}]"
        );
    })
    .await
    else {
        return;
    };
    let weaken = "alter domain outbox_events_json drop constraint is_json";
    scene.pool.execute(weaken).await.unwrap();
    write(&scene, "elsewhere.placed", r#"{"n": $n}"#, 4_000).await;
    write(&scene, "late.placed", r#"{"n": $n}"#, 3_500).await;
    write(&scene, "orders.placed", r#"{"n": $n"#, 2_500).await;
    let relay = scene.relay("relay").await;
    let dead = "select count(*) from outbox_events_dead where state = 'open'";
    scene.until(dead, |count| count == 10_000).await;

    let found = groups(&scene).await;
    let causes: Vec<(i64, &str)> = found.iter().map(|(n, reason, _)| (*n, reason.as_str())).collect();
    assert_eq!(
        causes,
        [
            (4_000, "permanent_failure"),
            (3_500, "max_retries_exceeded"),
            (2_500, "poison_message")
        ]
    );

    // A dry run, a replay without a filter and a discard without a reason must change nothing.
    let late = found[1].2.as_str();
    let tried = json(&scene, &["dead", "replay", "--fingerprint", late, "--dry-run"]).await;
    assert_eq!(
        (
            &tried["touched"]["count"],
            &tried["touched"]["keys"],
            &tried["done"]
        ),
        (&3_500.into(), &KEYS.into(), &0.into())
    );
    let unsaid = scene.run(&["dead", "replay"]).await;
    assert_eq!(unsaid.status.code(), Some(2), "a replay needs a filter");
    let unexplained = scene.run(&["dead", "discard", "--all", "--why", " "]).await;
    assert_eq!(unexplained.status.code(), Some(2), "a discard needs a reason");
    assert_eq!(scene.count(dead).await, 10_000);

    // Before the cause is fixed, replayed events die again, and their letters are open again.
    let replay = [
        "dead",
        "replay",
        "--fingerprint",
        late,
        "--by",
        "Zoë",
        "--why",
        "trying",
    ];
    assert_eq!(json(&scene, &replay).await["done"], 3_500);
    let waiting = "select count(*) from outbox_events where status not in ('published', 'dead')";
    scene.until(waiting, |count| count == 0).await;
    scene.until(dead, |count| count == 10_000).await;

    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let stream = stream::Config {
        name: "LATE".to_owned(),
        subjects: vec!["late.>".to_owned()],
        ..Default::default()
    };
    context.create_stream(stream).await.unwrap();
    assert_eq!(json(&scene, &replay).await["done"], 3_500);
    let published = "select count(*) from outbox_events where status = 'published'";
    scene.until(published, |count| count == 3_500).await;
    let mut next: HashMap<String, i64> = HashMap::new();
    for message in messages(&scene.config.sink, "LATE").await {
        let key = message.headers.as_ref().unwrap().get("Pillarbox-Key").unwrap();
        let n: Value = serde_json::from_slice(&message.payload).unwrap();
        let expected = next.entry(key.to_string()).or_default();
        assert_eq!(n["n"], *expected, "{key} must arrive in order, each event once");
        *expected += 1;
    }
    assert_eq!(next.values().sum::<i64>(), 3_500);

    let discard = [
        "dead",
        "discard",
        "--reason",
        "poison_message",
        "--why",
        "a broken producer",
    ];
    assert_eq!(json(&scene, &discard).await["done"], 2_500);
    let left = groups(&scene).await;
    assert_eq!((left.len(), left[0].0), (1, 4_000));
    let again = scene.run(&discard).await;
    assert_eq!(again.status.code(), Some(1), "no letter may match any more");

    // The history says who did what, and when.
    let one: (String,) =
        sqlx::query_as("select id::text from outbox_events where topic = 'late.placed' limit 1")
            .fetch_one(&scene.pool)
            .await
            .unwrap();
    let shown = json(&scene, &["dead", "show", &one.0]).await;
    assert_eq!(shown["state"], "replayed");
    let done: Vec<&Value> = shown["recoveries"].as_array().unwrap().iter().collect();
    assert_eq!(done.len(), 2);
    assert_eq!(
        (&done[0]["by"], &done[0]["why"], &done[0]["action"]),
        (&"Zoë".into(), &"trying".into(), &"replayed".into())
    );
    assert_eq!(shown["failures"][0]["relay"], "relay");
    assert_eq!(shown["failures"][0]["sink"], "events");
    assert_eq!(shown["event"]["payload"]["n"], 0);
    relay.stop().await;
}
