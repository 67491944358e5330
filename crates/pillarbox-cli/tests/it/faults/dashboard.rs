//! The Grafana dashboard and the alert rules, on a real Prometheus that scrapes a real relay.

use std::path::Path;

use pillarbox::{Event, Outbox};
use pillarbox_testkit::{servers::Prometheus, wait};
use serde_json::Value;

use super::harness::{Producer, Scene};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// The queries of all panels, as Grafana would send them.
fn queries() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{DEPLOY}/grafana/pillarbox.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    queries
        .map(|query| {
            query
                .replace("$job", "pillarbox")
                .replace("$__rate_interval", "1m")
        })
        .collect()
}

/// Writes an event that no route matches. It dies, and its type has a failure.
async fn lose_one(producer: &Producer) {
    let lost = Event::to("lost.topic")
        .event_type("Lost")
        .aggregate("order", "lost")
        .payload("{}");
    let mut tx = producer.begin().await;
    Outbox::default().enqueue(&mut tx, &lost).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_returns_data_from_a_real_relay() {
    let started = Scene::start(|config| {
        config.backpressure = "{ classes: [{ name: all, soft: 1000, hard: 2000 }] }".into();
    });
    let Some((scene, _nats)) = started.await else {
        return;
    };
    let (relay, address) = scene.serving("relay").await;
    let rules = format!("{DEPLOY}/prometheus/alerts.yml");
    let Some(prometheus) = Prometheus::start(&address, Path::new(&rules)).await else {
        return;
    };
    let producer = Producer::new(&scene);
    producer.place("key", 5).await;
    lose_one(&producer).await;

    let queries = queries();
    assert!(queries.len() > 30, "{queries:?}");
    for query in &queries {
        wait::until_ok(async || match prometheus.query(query) {
            Ok(series) if !series.is_empty() => Ok(()),
            Ok(_) => Err(format!("no data: {query}")),
            Err(error) => Err(format!("{query}: {error}")),
        })
        .await;
    }
    // The rules are loaded, and a death that Prometheus sees raises an alert.
    lose_one(&producer).await;
    wait::until_ok(async || {
        let firing = prometheus
            .query("ALERTS{alertname=\"OutboxDeadLettersGrow\"}")
            .unwrap();
        if firing.is_empty() {
            Err("no alert")
        } else {
            Ok(())
        }
    })
    .await;
    let wrong = prometheus.query("sum(").unwrap_err();
    assert!(wrong.contains("parse error"), "{wrong}");
    relay.stop().await;
}
