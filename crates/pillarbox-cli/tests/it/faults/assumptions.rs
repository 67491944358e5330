//! Breaks what the relay assumes about the database: sequences that go back, caches, rows copied from
//! elsewhere, rows that are far too large. No event is lost, and memory stays bounded.

use pillarbox_testkit::servers::Nats;

use super::harness::{Producer, STREAM, Scene, messages};

const PUBLISHED: &str = "select count(*) from outbox_events where status = 'published'";

/// A scene with `count` delivered events and low marks above them.
async fn delivered(count: u64) -> Option<(Scene, Nats)> {
    let (scene, nats) = Scene::start(|config| config.lease_ms = 1_000).await?;
    let relay = scene.relay("first").await;
    Producer::new(&scene).place("key-1", count).await;
    scene.settled().await;
    let low_mark = "select min(low_mark) from outbox_events_leases";
    scene.until(low_mark, |mark| mark >= count as i64).await;
    relay.stop().await;
    Some((scene, nats))
}

async fn run(scene: &Scene, sql: &'static str) {
    sqlx::raw_sql(sql).execute(&scene.pool).await.unwrap();
}

async fn pending(scene: &Scene) -> i64 {
    let status: serde_json::Value = serde_json::from_str(&scene.done(&["status", "--json"]).await).unwrap();
    status["pending"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_after_a_truncate_arrive_from_a_relay_at_work() {
    let Some((scene, _nats)) = delivered(20).await else {
        return;
    };
    let mut relay = scene.relay("relay").await;
    Producer::new(&scene).place("key-2", 5).await;
    scene.until(PUBLISHED, |published| published == 25).await;
    run(&scene, "truncate outbox_events restart identity").await;
    Producer::new(&scene).place("key-3", 10).await;
    scene.until(PUBLISHED, |published| published == 10).await;
    relay.says("reading the outbox again").await;
    scene.assert_whole().await;
    relay.stop().await;
}

/// The sequence has passed the old low mark before the relay starts again.
#[tokio::test(flavor = "multi_thread")]
async fn events_after_a_truncate_arrive_from_a_relay_that_was_stopped() {
    let Some((scene, _nats)) = delivered(10).await else {
        return;
    };
    run(&scene, "truncate outbox_events restart identity").await;
    Producer::new(&scene).place("key-2", 30).await;
    assert_eq!(
        pending(&scene).await,
        30,
        "`status` must count them before a relay starts"
    );
    let relay = scene.relay("relay").await;
    scene.assert_whole().await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_after_a_sequence_was_set_back_arrive() {
    let Some((scene, _nats)) = delivered(20).await else {
        return;
    };
    run(
        &scene,
        "delete from outbox_events; select setval('outbox_events_seq', 1, false)",
    )
    .await;
    Producer::new(&scene).place("key-2", 10).await;
    assert_eq!(
        pending(&scene).await,
        10,
        "`status` must count them before a relay starts"
    );
    let relay = scene.relay("relay").await;
    scene.until(PUBLISHED, |published| published == 10).await;
    // The same while a relay is running.
    run(
        &scene,
        "delete from outbox_events; select setval('outbox_events_seq', 1, false)",
    )
    .await;
    Producer::new(&scene).place("key-3", 5).await;
    scene.assert_whole().await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_with_a_cache_is_refused_with_the_way_out() {
    let Some((scene, _nats)) = delivered(1).await else {
        return;
    };
    run(&scene, "alter sequence outbox_events_seq cache 20").await;
    let mut relay = scene.spawn("relay");
    assert_eq!(relay.ended().await.code(), Some(2));
    let log = relay.log();
    assert!(log.contains("alter sequence outbox_events_seq cache 1;"), "{log}");
    scene.done(&["migrate"]).await;
    let relay = scene.relay("again").await;
    Producer::new(&scene).place("key-1", 1).await;
    scene.assert_whole().await;
    relay.stop().await;
}

/// Once ahead of this cluster's transactions, and once behind them.
#[tokio::test(flavor = "multi_thread")]
async fn events_with_a_foreign_txid_arrive_once() {
    let Some((scene, _nats)) = delivered(1).await else {
        return;
    };
    let relay = scene.relay("relay").await;
    for (n, txid) in ["900000000000", "4"].into_iter().enumerate() {
        let id = uuid::Uuid::now_v7();
        sqlx::query(
            "insert into outbox_events (txid, id, topic, event_type, aggregate_type, aggregate_id, payload)
             values ($1::text::xid8, $2, 'orders.placed', 'Placed', 'order', 'foreign', '{}')",
        )
        .bind(txid)
        .bind(id)
        .execute(&scene.pool)
        .await
        .unwrap();
        scene.ledger.committed(id, "foreign", n as u64);
    }
    scene.assert_whole().await;
    relay.stop().await;
}

/// The headers have 900 MB in total.
#[tokio::test(flavor = "multi_thread")]
async fn large_headers_become_dead_letters_and_fill_no_memory() {
    const GROWTH_BYTES_MAX: u64 = 60_000_000;
    let Some((scene, nats)) = delivered(1_000).await else {
        return;
    };
    let relay = scene.relay("relay").await;
    Producer::new(&scene).place("key-1", 200).await;
    scene.settled().await;
    let (before, _) = relay.memory();
    run(
        &scene,
        "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload, headers)
         select 'orders.placed', 'Placed', 'order', 'large-' || n, '{}', jsonb_build_object('h', repeat('x', 3000000))
         from generate_series(1, 300) n",
    )
    .await;
    Producer::new(&scene).place("key-1", 200).await;
    let dead = "select count(*) from outbox_events where status = 'dead'";
    scene.until(dead, |dead| dead == 300).await;
    scene.settled().await;
    let (_, peak) = relay.memory();
    let grown = peak.saturating_sub(before);
    println!("{:.1} MB more", grown as f64 / 1e6);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more");
    assert_eq!(messages(&nats.url(), STREAM).await.len(), 1_400);
    let letters = scene.done(&["dead", "list"]).await;
    assert!(
        letters.contains("300") && letters.contains("the headers have about"),
        "{letters}"
    );
    relay.stop().await;
}
