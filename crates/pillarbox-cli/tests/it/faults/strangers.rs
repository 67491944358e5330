//! With third-party software: a consumer, a pooler, and another process that uses the same SQLite file.

use pillarbox_testkit::{
    ledger::Ledger,
    nats_py,
    servers::{self, Nats, Pgbouncer},
    wait,
};

use super::harness::{Binary, Config, Load, Producer, STREAM, Scene, event, read_stream};

#[tokio::test(flavor = "multi_thread")]
async fn nats_py_receives_each_event_once_with_headers_and_in_order() {
    let Some((scene, nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let load = Load::start(&scene, 17);
    let relay = scene.relay("relay").await;
    scene
        .until(
            "select count(*) from outbox_events where status = 'published'",
            |events| events > 1_000,
        )
        .await;
    load.stop().await;
    scene.settled().await;
    let committed = scene.ledger.committed_count() as u64;
    let Some(verdict) = nats_py::consume(&nats.url(), STREAM, committed).await else {
        return;
    };
    assert!(verdict.whole, "{verdict:?}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_work_through_a_transaction_pooler() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let (Some(nats), Some(pgbouncer)) = (Nats::start().await, Pgbouncer::start(postgres).await) else {
        return;
    };
    let database = postgres.database().await;
    let mut config = Config::new(&pgbouncer.through(&database), &nats.url());
    config.pooler = true;
    config.lease_ms = 500;
    let scene = Scene::beside(config, &database);
    scene.prepare().await;
    let load = Load::start(&scene, 19);
    let published = "select count(*) from outbox_events where status = 'published'";
    let one = scene.relay("one").await;
    let two = scene.relay("two").await;
    scene.lanes_of("two", |lanes| lanes > 0).await;
    scene.until(published, |events| events > 300).await;
    one.kill().await;
    scene.lanes_of("two", |lanes| lanes == 256).await;
    let before = scene.count(published).await;
    scene.until(published, |events| events > before + 300).await;
    load.stop().await;
    scene.assert_whole().await;
    // Only the poll wakes the relay: nothing can listen through the pooler.
    Producer::new(&scene).place("key-1", 1).await;
    scene.settled().await;
    two.stop().await;
}

/// The application is another process with the same file open. The relay is killed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_in_sqlite_loses_nothing_to_a_relay_that_is_killed() {
    let Some(nats) = Nats::start().await else {
        return;
    };
    let mut config = Config::new("sqlite:outbox.db", &nats.url());
    config.lease_ms = 500;
    let binary = Binary::new(config);
    let ledger = Ledger::new();
    binary.done(&["migrate"]).await;
    binary.done(&["streams", "apply"]).await;
    let mut relay = binary.relay("relay-0").await;
    for round in 0..15_u64 {
        let (first, keys) = (round * 20, 4);
        let events: Vec<_> = (first..first + 20)
            .map(|n| (event(&format!("key-{}", n % keys), n / keys), n))
            .collect();
        let lines: String = events
            .iter()
            .map(|(event, _)| serde_json::to_string(event).unwrap() + "\n")
            .collect();
        let output = binary.feed(&["enqueue", "--ndjson"], &lines).await;
        assert!(output.status.success(), "{output:?}");
        for (event, n) in &events {
            ledger.committed(event.id.clone(), event.key(), n / keys);
        }
        if round % 5 == 2 {
            relay.kill().await;
            relay = binary.relay(&format!("relay-{round}")).await;
        }
    }
    wait::until_ok(async || {
        let status: serde_json::Value =
            serde_json::from_str(&binary.done(&["status", "--json"]).await).unwrap();
        let none = |state: &&str| status[*state] == 0;
        if ["pending", "failed", "held"].iter().all(none) {
            return Ok(());
        }
        Err(format!("not settled: {status}"))
    })
    .await;
    read_stream(&nats.url(), STREAM, &ledger).await;
    let verdict = ledger.verdict();
    assert!(verdict.is_whole() && verdict.duplicated == 0, "{verdict}");
    assert_eq!(verdict.committed, 300);
    relay.stop().await;
}
