//! Servers that are restarted, away, or receive without answering.

use std::{collections::HashMap, time::Duration};

use pillarbox_testkit::{
    proxy::{Fault, Proxy},
    servers::{Nats, Postgres, PostgresOptions, free_port, postgres},
    torture::Campaign,
};

use super::harness::{Config, Load, Producer, STREAM, Scene, messages, read_stream};

/// Waits until more events are published than now.
pub(super) async fn moves(scene: &Scene) {
    let sql = "select count(*) from outbox_events where status = 'published'";
    let before = scene.count(sql).await;
    scene.until(sql, |published| published >= before + 100).await;
}

/// Only failures of an event itself are counted. An outage is not.
pub(super) async fn assert_nobody_was_charged(scene: &Scene) {
    let charged = scene
        .count("select count(*) from outbox_events where attempts <> 0 or status <> 'published'")
        .await;
    assert_eq!(charged, 0, "an outage must charge no event");
}

/// Shuts PostgreSQL down and crashes it under two relays.
#[tokio::test(flavor = "multi_thread")]
async fn torture_the_database_is_restarted_under_load() {
    let campaign = Campaign::begin("the_database_is_restarted_under_load");
    let Some(mut postgres) = Postgres::start(PostgresOptions::default()).await else {
        return;
    };
    let Some(nats) = Nats::start().await else {
        return;
    };
    let mut config = Config::new(&postgres.database().await, &nats.url());
    config.lease_ms = 1_000;
    let scene = Scene::with(config);
    scene.prepare().await;
    let load = Load::start(&scene, campaign.seed());
    let relays = [scene.relay("one").await, scene.relay("two").await];
    moves(&scene).await;
    postgres.restart().await;
    moves(&scene).await;
    postgres.kill().await;
    postgres.start_again().await;
    moves(&scene).await;
    while campaign.goes_on(0, 0) {
        postgres.restart().await;
        moves(&scene).await;
    }
    load.stop().await;
    scene.assert_whole().await;
    for relay in relays {
        relay.stop().await;
    }
}

/// Shuts NATS down and kills it under a relay.
#[tokio::test(flavor = "multi_thread")]
async fn torture_nats_is_restarted_under_load() {
    let campaign = Campaign::begin("nats_is_restarted_under_load");
    let Some((scene, mut nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let load = Load::start(&scene, campaign.seed());
    let relay = scene.relay("relay").await;
    moves(&scene).await;
    nats.restart().await;
    moves(&scene).await;
    nats.kill().await;
    nats.start_again().await;
    moves(&scene).await;
    while campaign.goes_on(0, 0) {
        nats.restart().await;
        moves(&scene).await;
    }
    load.stop().await;
    scene.assert_whole().await;
    assert_nobody_was_charged(&scene).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_away_from_the_start_charges_no_event() {
    let Some((scene, mut nats)) = Scene::start(|_| {}).await else {
        return;
    };
    nats.stop().await;
    let producer = Producer::new(&scene);
    for n in 0..50 {
        producer.place(&format!("key-{}", n % 10), 2).await;
    }
    let mut relay = scene.spawn("relay");
    relay.says("is away").await;
    relay.says("the sink is away: pausing it").await;
    producer.place("key-0", 5).await;
    nats.start_again().await;
    scene.assert_whole().await;
    assert_nobody_was_charged(&scene).await;
    relay.stop().await;
}

/// Events that it had read and not settled are still in the table, above the low marks, which are written
/// with each heartbeat.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_killed_while_its_sink_is_away_takes_nothing_with_it() {
    let Some((scene, mut nats)) = Scene::start(|config| config.lease_ms = 500).await else {
        return;
    };
    let producer = Producer::new(&scene);
    let mut first = scene.relay("first").await;
    producer.place("key-0", 2).await;
    scene.settled().await;
    nats.stop().await;
    producer.place("key-1", 1).await;
    first.says("the sink is away: pausing it").await;
    // Several heartbeats; the relay has read more events at each of them.
    for beat in 0..10 {
        producer.place(&format!("key-{}", beat % 3), 2).await;
        let seen = "select (extract(epoch from seen_at) * 1e6)::bigint from outbox_events_relays";
        let before = scene.count(seen).await;
        scene.until(seen, |now| now > before).await;
    }
    first.kill().await;
    nats.start_again().await;
    let second = scene.relay("second").await;
    scene.assert_whole().await;
    second.stop().await;
}

/// Events whose acknowledgements were lost are published again, and the broker drops the copies.
#[tokio::test(flavor = "multi_thread")]
async fn lost_acknowledgements_cost_neither_an_event_nor_a_copy() {
    let Some(postgres) = postgres().await else {
        return;
    };
    let Some(nats) = Nats::start().await else {
        return;
    };
    let proxy = Proxy::in_front_of(&nats.url()).await;
    let mut config = Config::new(&postgres.database().await, &proxy.through(&nats.url()));
    config.publish_timeout_ms = 500;
    let scene = Scene::with(config);
    scene.prepare().await;
    let load = Load::start(&scene, 3);
    let mut relay = scene.relay("relay").await;
    for loss in 1..=2 {
        moves(&scene).await;
        let heard = messages(&nats.url(), STREAM).await.len();
        proxy.set(Fault::DropReplies).await;
        // The relay times out, although the stream stores the events.
        relay.says_times("no acknowledgement within", loss).await;
        assert!(
            messages(&nats.url(), STREAM).await.len() > heard,
            "no event was stored without an acknowledgement"
        );
        proxy.set(Fault::Pass).await;
    }
    moves(&scene).await;
    load.stop().await;
    scene.assert_whole().await;
    let dead = scene.count("select count(*) from outbox_events_dead").await;
    assert_eq!(dead, 0);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_makes_run_wait_and_a_one_shot_command_fail() {
    let Some(mut postgres) = Postgres::start(PostgresOptions::default()).await else {
        return;
    };
    let Some(nats) = Nats::start().await else {
        return;
    };
    let scene = Scene::with(Config::new(&postgres.database().await, &nats.url()));
    scene.prepare().await;
    let producer = Producer::new(&scene);
    producer.place("key", 3).await;
    postgres.stop().await;

    let output = scene.run(&["status"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let mut relay = scene.spawn("relay");
    relay.says("Waiting for the database").await;
    postgres.start_again().await;
    relay.says("is back").await;
    scene.assert_whole().await;
    relay.stop().await;
}

/// A relay that can reach no server still obeys SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_waits_for_its_database_stops_when_asked() {
    let port = free_port();
    let nowhere = format!("postgres://postgres@127.0.0.1:{port}/shop");
    let scene = Scene::with(Config::new(&nowhere, &format!("nats://127.0.0.1:{port}")));
    let mut relay = scene.spawn("relay");
    relay.says("Waiting for the database").await;
    let asked = tokio::time::Instant::now();
    relay.stop().await;
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        asked.elapsed()
    );
}

/// One of two sinks is away, with more events for it than a relay keeps in memory. The other sink continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_away_does_not_keep_the_others_waiting() {
    let Some(mut far) = Nats::start().await else {
        return;
    };
    let url = far.url();
    let Some((scene, _nats)) = Scene::start(|config| {
        config.window_events_max = 400;
        config.far = Some(url);
        config.routes = format!(
            "[{{ topic: 'orders.>', sink: events, stream: {STREAM} }}, {{ topic: 'far.>', sink: far, stream: FAR }}]"
        );
        config.streams = format!(
            "[{{ name: {STREAM}, subjects: ['orders.>'], sink: events }}, {{ name: FAR, subjects: ['far.>'], sink: far }}]"
        );
    })
    .await
    else {
        return;
    };
    // Each payload is a number. The numbers rise within a key.
    let write = async |topic: &str, keys: &str, first: i64, last: i64| {
        let sql = "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload)
                   select $1, 'Placed', 'order', $2 || n % 20, n::text from generate_series($3, $4) n";
        let query = sqlx::query(sql).bind(topic).bind(keys).bind(first).bind(last);
        query.execute(&scene.pool).await.unwrap();
    };
    far.stop().await;
    let relay = scene.relay("relay").await;
    write("far.placed", "far-", 1, 2_000).await;
    // Keys with events for the far sink wait with them. All other keys continue.
    write("orders.placed", "far-", 2_001, 2_100).await;
    write("orders.placed", "near-", 1, 2_000).await;
    let published = "select count(*) from outbox_events where status = 'published'";
    scene.until(published, |events| events == 2_000).await;
    write("orders.placed", "near-", 2_001, 2_500).await;
    scene.until(published, |events| events == 2_500).await;
    let waiting = "select count(*) from outbox_events where status = 'pending' and attempts = 0";
    assert_eq!(
        scene.count(waiting).await,
        2_100,
        "no event may be charged or dead"
    );

    far.start_again().await;
    scene.until(published, |events| events == 4_600).await;
    let mut arrived = Vec::new();
    for (nats, stream, count) in [(&far.url(), "FAR", 2_000), (&scene.config.sink, STREAM, 2_600)] {
        let stored = messages(nats, stream).await;
        assert_eq!(stored.len(), count, "{stream}");
        arrived.extend(stored.into_iter().map(|message| {
            let key = message.headers.as_ref().unwrap().get("Pillarbox-Key").unwrap();
            let number: u64 = std::str::from_utf8(&message.payload).unwrap().parse().unwrap();
            (message.info().unwrap().published, key.to_string(), number)
        }));
    }
    arrived.sort_by_key(|(at, ..)| *at);
    let mut last: HashMap<String, u64> = HashMap::new();
    for (_, key, number) in arrived {
        let before = last.insert(key.clone(), number);
        assert!(before < Some(number), "{key}: {number} after {before:?}");
    }
    relay.stop().await;
}

/// Every network fault, one after the other, each for a share of the budget.
///
/// With a budget of a quarter of an hour, NATS is away for three minutes, and its replies are dropped for
/// three minutes.
#[tokio::test(flavor = "multi_thread")]
async fn torture_the_network_to_nats_goes_wrong_under_load() {
    let campaign = Campaign::begin("the_network_to_nats_goes_wrong_under_load");
    let (Some(nats), Some(postgres)) = (Nats::start().await, postgres().await) else {
        return;
    };
    let proxy = Proxy::start(([127, 0, 0, 1], nats.port()).into()).await;
    let direct = Config::new(&postgres.database().await, &nats.url());
    let mut config = Config::new(&direct.database, &format!("nats://{}", proxy.address()));
    config.publish_timeout_ms = 1_000;
    let scene = Scene::with(config);
    scene.prepare().await;
    let load = Load::start(&scene, campaign.seed());
    let relay = scene.relay("relay").await;
    moves(&scene).await;
    let faults = [
        Fault::Refuse,
        Fault::DropReplies,
        Fault::BlackHole,
        Fault::Reset,
        Fault::Pause,
    ];
    let mut worst = Duration::ZERO;
    let published = "select count(*) from outbox_events where status = 'published'";
    for fault in faults {
        proxy.set(fault).await;
        tokio::time::sleep(campaign.budget() / faults.len() as u32).await;
        let before = scene.count(published).await;
        proxy.set(Fault::Pass).await;
        let back = std::time::Instant::now();
        scene.until(published, |events| events > before).await;
        println!(
            "{fault:?}: the first delivery {:.1} s after",
            back.elapsed().as_secs_f64()
        );
        worst = worst.max(back.elapsed());
        moves(&scene).await;
    }
    load.stop().await;
    scene.settled().await;
    read_stream(&direct.sink, STREAM, &scene.ledger).await;
    let verdict = scene.ledger.verdict();
    assert!(verdict.is_whole() && verdict.duplicated == 0, "{verdict}");
    assert_nobody_was_charged(&scene).await;
    println!(
        "{verdict}; the longest wait after a fault {:.1} s",
        worst.as_secs_f64()
    );
    relay.stop().await;
}
