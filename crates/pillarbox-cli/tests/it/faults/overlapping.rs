//! Two faults at the same time, as in a real outage.

use pillarbox::{Event, Outbox};
use serde_json::json;

use super::{
    harness::{Producer, STREAM, Scene, messages},
    outages::assert_nobody_was_charged,
};

/// A rolling deployment during an upgrade of the broker: relays join and leave while the sink is being
/// checked.
#[tokio::test(flavor = "multi_thread")]
async fn relays_that_join_while_nats_is_away_deliver_when_it_is_back() {
    let Some((scene, mut nats)) = Scene::start(|config| config.lease_ms = 500).await else {
        return;
    };
    let producer = Producer::new(&scene);
    let mut first = scene.relay("first").await;
    producer.place("key-0", 1).await;
    scene.settled().await;
    nats.stop().await;
    // NATS first refuses connections, then accepts them without answering. So a check is running almost all
    // the time.
    for n in 0..20 {
        producer.place(&format!("key-{n}"), 2).await;
    }
    first.says("the sink is away: pausing it").await;
    nats.start_again().await;
    nats.pause().await;
    let mut others = Vec::new();
    for name in ["second", "third", "fourth"] {
        others.push(scene.spawn(name));
        scene.lanes_of(name, |lanes| lanes > 0).await;
    }
    let fourth = others.pop().unwrap();
    fourth.kill().await;
    scene.lanes_of("first", |lanes| lanes > 64).await;
    nats.resume().await;
    scene.assert_whole().await;
    assert_nobody_was_charged(&scene).await;
    for relay in others {
        relay.stop().await;
    }
    first.stop().await;
}

/// The side table has a later event of the key than the main table. It must wait until the earlier one was
/// read.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_event_does_not_overtake_an_earlier_one_after_a_crash() {
    let Some((scene, mut nats)) = Scene::start(|config| {
        config.routes =
            format!("[{{ topic: 'orders.>', sink: events, stream: {STREAM}, after_death: latest }}]");
        config.validation =
            "{ enable_business_rule_validation: true, rules: [{ name: fit, event_type: '*', rule: payload.fit }] }"
                .into();
    })
    .await
    else {
        return;
    };
    let event = |n: u32, fit: bool| {
        Event::to("orders.placed")
            .event_type("Placed")
            .aggregate("order", "key")
            .json(&json!({ "n": n, "fit": fit }))
            .unwrap()
    };
    nats.stop().await;
    let relay = scene.spawn("relay");
    scene.lanes_of("relay", |lanes| lanes > 0).await;
    let (first, unfit, last) = (event(1, true), event(2, false), event(3, true));
    for events in [&[first.clone()][..], &[unfit, last.clone()]] {
        let mut tx = scene.pool.begin().await.unwrap();
        Outbox::default().enqueue_all(&mut tx, events).await.unwrap();
        tx.commit().await.unwrap();
    }
    scene
        .until(
            "select count(*) from outbox_events where status = 'held'",
            |held| held == 1,
        )
        .await;
    relay.kill().await;
    nats.start_again().await;
    let relay = scene.relay("another").await;
    scene.settled().await;
    let ids: Vec<String> = messages(&scene.config.sink, STREAM)
        .await
        .iter()
        .map(|message| {
            message
                .headers
                .as_ref()
                .unwrap()
                .get("Nats-Msg-Id")
                .unwrap()
                .to_string()
        })
        .collect();
    assert_eq!(ids, [first.id.to_string(), last.id.to_string()]);
    relay.stop().await;
}
