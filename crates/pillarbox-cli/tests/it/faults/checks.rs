//! Checks before publishing, with real events.

use pillarbox::{Event, EventId, Outbox};
use pillarbox_testkit::schema_registry_stub::{Manner, SchemaRegistryStub};
use serde_json::{Value, json};
use sqlx::Executor;
use tempfile::TempDir;

use super::harness::{STREAM, Scene, messages};

const DEAD: &str = "select count(*) from outbox_events_dead where state = 'open'";
const PUBLISHED: &str = "select count(*) from outbox_events where status = 'published'";

fn event(event_type: &str, key: &str, payload: &Value) -> Event {
    Event::to("orders.placed")
        .event_type(event_type)
        .aggregate("order", key)
        .json(payload)
        .unwrap()
}

async fn write(scene: &Scene, events: &[Event]) {
    let mut tx = scene.pool.begin().await.unwrap();
    Outbox::default().enqueue_all(&mut tx, events).await.unwrap();
    tx.commit().await.unwrap();
}

/// The ids in the stream, in order.
async fn delivered(scene: &Scene) -> Vec<EventId> {
    let messages = messages(&scene.config.sink, STREAM).await;
    let id = |message: &async_nats::jetstream::Message| {
        let headers = message.headers.as_ref().unwrap();
        headers.get("Nats-Msg-Id").unwrap().as_str().parse().unwrap()
    };
    messages.iter().map(id).collect()
}

fn ids(events: &[Event]) -> Vec<EventId> {
    events.iter().map(|event| event.id.clone()).collect()
}

async fn shown(scene: &Scene, id: EventId) -> Value {
    serde_json::from_str(&scene.done(&["--json", "dead", "show", &id.to_string()]).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_failed_its_check_is_delivered_once_the_schema_is_fixed() {
    let folder = TempDir::new().unwrap();
    let schema = folder.path().join("Placed.json");
    std::fs::write(&schema, r#"{ "properties": { "total": { "type": "integer" } } }"#).unwrap();
    let Some((scene, _nats)) = Scene::start(|config| {
        config.validation = format!(
            "{{ enable_schema_validation: true, schema_folder: '{}', schema_reload_seconds: 1, \
             enable_business_rule_validation: true, rules: [{{ name: stores-named, event_type: 'Pl*', \
             rule: 'size(payload.stores) > 0', message: name the stores }}] }}",
            folder.path().display()
        );
    })
    .await
    else {
        return;
    };
    let events = [
        event("Placed", "a", &json!({ "total": "geheim", "stores": ["n"] })),
        event("Placed", "a", &json!({ "total": 2, "stores": ["n"] })),
        event("Placed", "b", &json!({ "total": 3, "stores": [] })),
        event("Other", "b", &json!({ "total": "anything" })),
    ];
    write(&scene, &events).await;
    let mut relay = scene.relay("relay").await;
    scene.until(DEAD, |dead| dead == 2).await;
    scene.until(PUBLISHED, |published| published == 2).await;

    let letter = shown(&scene, events[0].id.clone()).await;
    assert_eq!(letter["reason"], "schema_validation_failed");
    assert_eq!(
        letter["error"],
        "schema `Placed.json` at /total: the value is not of type `integer`"
    );
    assert_eq!(letter["attempts"], 0);
    let letter = shown(&scene, events[2].id.clone()).await;
    assert_eq!(
        letter["error"],
        "rule `stores-named` at payload.stores: name the stores"
    );
    assert!(!relay.log().contains("geheim"));

    // A broken file changes nothing. A correct one is used soon.
    std::fs::write(&schema, "{ \"properties\": ").unwrap();
    relay.says("keeping the previous schemas").await;
    std::fs::write(
        &schema,
        r#"{ "properties": { "total": { "type": ["integer", "string"] } } }"#,
    )
    .unwrap();
    relay.says("the schema folder has changed: read again").await;
    scene
        .done(&[
            "dead",
            "replay",
            "--event-type",
            "Placed",
            "--why",
            "the schema is mended",
        ])
        .await;
    scene.until(PUBLISHED, |published| published == 3).await;
    scene.until(DEAD, |dead| dead == 1).await;
    let delivered = delivered(&scene).await;
    assert_eq!(delivered.len(), 3);
    assert!(delivered.contains(&events[0].id) && !delivered.contains(&events[2].id));
    relay.stop().await;
}

/// The key is blocked at the first look and at every later one, together with the events behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_check_blocks_its_key_where_the_route_says_so() {
    let Some((scene, _nats)) = Scene::start(|config| {
        config.routes = "[{ topic: '>', sink: events, after_death: block }]".into();
        config.validation = "{ enable_business_rule_validation: true, \
            rules: [{ name: positive, rule: 'payload.n > 0' }] }"
            .into();
    })
    .await
    else {
        return;
    };
    let n = |key: &str, n: i64| event("Placed", key, &json!({ "n": n }));
    let events = [n("a", 1), n("a", -1), n("a", 2), n("a", 3), n("b", 1)];
    write(&scene, &events).await;
    let relay = scene.relay("relay").await;
    let held = "select count(*) from outbox_events where status = 'held'";
    scene.until(PUBLISHED, |published| published == 2).await;
    scene.until(held, |held| held == 2).await;
    for round in 1..=3 {
        scene.done(&["dead", "replay", "--all", "--yes"]).await;
        let again = format!(
            "select count(*) from outbox_events_dead d join outbox_events_recoveries r using (seq)
             where d.state = 'open' having count(*) = {round} union all select 0 limit 1"
        );
        scene.until(&again, |found| found == round).await;
    }
    assert_eq!(scene.count(PUBLISHED).await, 2, "no event behind it may be sent");
    scene
        .done(&["dead", "discard", "--all", "--yes", "--why", "a test"])
        .await;
    scene.until(PUBLISHED, |published| published == 4).await;
    let delivered = delivered(&scene).await;
    let of_key: Vec<EventId> = delivered.into_iter().filter(|id| *id != events[4].id).collect();
    assert_eq!(
        of_key,
        [events[0].id.clone(), events[2].id.clone(), events[3].id.clone()]
    );
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_warns_delivers_and_says_so_once_in_a_while() {
    let Some((scene, _nats)) = Scene::start(|config| {
        config.validation = "{ enable_business_rule_validation: true, \
            rules: [{ name: known, rule: 'payload.n > 1000', on_failure: warn }] }"
            .into();
    })
    .await
    else {
        return;
    };
    let events: Vec<Event> = (0..300)
        .map(|n| event("Placed", &format!("k-{}", n % 7), &json!({ "n": n })))
        .collect();
    write(&scene, &events).await;
    let mut relay = scene.relay("relay").await;
    scene.until(PUBLISHED, |published| published == 300).await;
    relay.says("an event fails a check that only warns").await;
    let told = relay
        .log()
        .matches("an event fails a check that only warns")
        .count();
    assert!(told <= 3, "{told} lines for 300 events");
    assert_eq!(scene.count(DEAD).await, 0);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_registry_is_away_a_key_waits_uncharged_and_others_continue() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.put("Known", 1, "{}");
    stub.put("New", 1, r#"{ "required": ["n"] }"#);
    let Some((scene, _nats)) = Scene::start(|config| {
        config.validation = format!(
            "{{ enable_schema_validation: true, schema_registry_url: '{}' }}",
            stub.url_with("app:geheim")
        );
    })
    .await
    else {
        return;
    };
    let mut relay = scene.relay("relay").await;
    let first = [event("Known", "b", &json!({}))];
    write(&scene, &first).await;
    scene.until(PUBLISHED, |published| published == 1).await;
    stub.behave(Manner::Away);
    let waiting = [
        event("Known", "a", &json!({ "n": 1 })),
        event("New", "a", &json!({ "n": 2 })),
        event("Known", "a", &json!({ "n": 3 })),
        event("New", "a", &json!({})),
        event("Known", "a", &json!({ "n": 5 })),
    ];
    let neighbours: Vec<Event> = (0..20).map(|n| event("Known", "b", &json!({ "n": n }))).collect();
    write(&scene, &waiting).await;
    write(&scene, &neighbours).await;
    scene.until(PUBLISHED, |published| published == 22).await;
    relay.says("schemas are not available").await;
    let parked = "select count(*) from outbox_events_parked where key = 'a'";
    scene.until(parked, |parked| parked == 4).await;
    // The events still wait after a restart, and no attempt is counted.
    relay.stop().await;
    let mut relay = scene.relay("relay").await;
    relay.says("schemas are not available").await;
    let attempts = "select coalesce(sum(attempts), 0)::bigint from outbox_events";
    assert_eq!(scene.count(attempts).await, 0);
    assert_eq!(scene.count(PUBLISHED).await, 22);

    stub.behave(Manner::Answers);
    scene.until(PUBLISHED, |published| published == 25).await;
    scene.until(DEAD, |dead| dead == 1).await;
    let delivered = delivered(&scene).await;
    let of_a: Vec<EventId> = delivered
        .into_iter()
        .filter(|id| ids(&waiting).contains(id))
        .collect();
    let expected: Vec<EventId> = [0, 1, 2, 4].map(|n: usize| waiting[n].id.clone()).to_vec();
    assert_eq!(of_a, expected, "in order, without the event that fails");
    assert_eq!(scene.count(attempts).await, 0);
    assert!(!relay.log().contains("geheim"));
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_registry_is_away_events_pass_or_die_where_that_is_wanted() {
    let stub = SchemaRegistryStub::start().await.unwrap();
    stub.behave(Manner::Status(503));
    for (policy, published, dead) in [("pass", 3, 0), ("reject", 0, 3)] {
        let Some((scene, _nats)) = Scene::start(|config| {
            config.validation = format!(
                "{{ enable_schema_validation: true, schema_registry_url: '{}', schema_registry_when_away: {policy} }}",
                stub.url()
            );
        })
        .await
        else {
            return;
        };
        let events: Vec<Event> = (0..3).map(|n| event("New", "a", &json!({ "n": n }))).collect();
        write(&scene, &events).await;
        let relay = scene.relay("relay").await;
        scene.settled().await;
        assert_eq!(
            (scene.count(PUBLISHED).await, scene.count(DEAD).await),
            (published, dead),
            "{policy}"
        );
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_version_is_a_dead_letter_also_after_a_restart() {
    let Some((scene, _nats)) = Scene::start(|config| {
        config.validation = "{ aggregate_versions: reject }".into();
    })
    .await
    else {
        return;
    };
    let version = |n: i64| event("Placed", "a", &json!({ "n": n })).aggregate_version(n);
    scene
        .pool
        .execute("drop index outbox_events_versions")
        .await
        .unwrap();
    let refused = scene.run(&["run", "--no-http"]).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("pillarbox migrate"));
    assert!(
        scene
            .done(&["migrate"])
            .await
            .contains("created index outbox_events_versions")
    );
    assert!(!scene.done(&["migrate"]).await.contains("created index"));

    let relay = scene.relay("relay").await;
    write(&scene, &[version(1), version(2), version(2), version(3)]).await;
    scene.until(PUBLISHED, |published| published == 3).await;
    scene.until(DEAD, |dead| dead == 1).await;
    relay.stop().await;
    let relay = scene.relay("relay").await;
    let stale = version(3);
    write(&scene, &[stale.clone(), version(4)]).await;
    scene.until(PUBLISHED, |published| published == 4).await;
    scene.until(DEAD, |dead| dead == 2).await;
    let letter = shown(&scene, stale.id.clone()).await;
    let error = letter["error"].as_str().unwrap();
    assert!(
        error.starts_with("aggregate_versions at aggregate_version: 3 does not come after 3"),
        "{error}"
    );
    // A person decides: a replayed event is not checked against the versions again.
    scene
        .done(&["dead", "replay", &stale.id.to_string(), "--why", "it is right"])
        .await;
    scene.until(PUBLISHED, |published| published == 5).await;
    relay.stop().await;
}
