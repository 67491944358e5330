//! Relays that are killed, stopped and paused, and others that join.

use std::time::Duration;

use pillarbox_testkit::torture::Campaign;
use rand::RngExt;
use tokio::time::Instant;

use super::harness::{Load, Relay, STREAM, Scene, messages};

/// Waits until a relay is busy: it holds lanes that have unsettled events.
pub(super) async fn busy(scene: &Scene, relay: &str) {
    let sql = format!(
        "select count(*) from outbox_events e join outbox_events_lanes l on l.lane = e.lane
         join outbox_events_relays r on r.id = l.owner
         where r.name = '{relay}' and e.status = 'pending'"
    );
    scene.until(&sql, |unsettled| unsettled > 0).await;
}

/// Kills a relay in the middle of a batch, ten times, while another one works.
#[tokio::test(flavor = "multi_thread")]
async fn torture_kill_nine_ten_times_over() {
    let campaign = Campaign::begin("kill_nine_ten_times_over");
    let Some((scene, _nats)) = Scene::start(|config| config.lease_ms = 500).await else {
        return;
    };
    let other = kill_nine(&scene, &campaign).await;
    scene.assert_whole().await;
    other.stop().await;
}

/// Kills a relay ten times or more under load. Returns the relay that is left.
pub(super) async fn kill_nine(scene: &Scene, campaign: &Campaign) -> Relay {
    let mut rng = campaign.rng();
    let load = Load::start(scene, campaign.seed());
    let other = scene.relay("other").await;
    let mut killed = 0;
    while campaign.goes_on(killed, 10) {
        let victim = scene.relay(&format!("victim-{killed}")).await;
        busy(scene, &format!("victim-{killed}")).await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await;
        victim.kill().await;
        killed += 1;
    }
    load.stop().await;
    other
}

/// Relays start, and stop by SIGTERM, under load.
#[tokio::test(flavor = "multi_thread")]
async fn torture_relays_join_and_leave_under_load() {
    let campaign = Campaign::begin("relays_join_and_leave_under_load");
    let Some((scene, _nats)) = Scene::start(|config| config.lease_ms = 1_000).await else {
        return;
    };
    let mut rng = campaign.rng();
    let load = Load::start(&scene, campaign.seed());
    let mut relays: Vec<(String, Relay)> = Vec::new();
    let mut joined = 0;
    while campaign.goes_on(joined, 8) {
        if relays.len() < 2 || (relays.len() < 3 && rng.random_bool(0.5)) {
            let name = format!("relay-{joined}");
            relays.push((name.clone(), scene.relay(&name).await));
            scene.lanes_of(&name, |lanes| lanes > 0).await;
            joined += 1;
        } else {
            let (name, relay) = relays.swap_remove(rng.random_range(0..relays.len()));
            busy(&scene, &name).await;
            relay.stop().await;
        }
    }
    load.stop().await;
    scene.assert_whole().await;
    for (_, relay) in relays {
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_expires_while_its_holder_sleeps_breaks_nothing() {
    let Some((scene, _nats)) = Scene::start(|config| config.lease_ms = 1_500).await else {
        return;
    };
    let load = Load::start(&scene, 7);
    let sleeper = scene.relay("sleeper").await;
    let other = scene.relay("other").await;
    scene.lanes_of("other", |lanes| lanes > 0).await;
    for _ in 0..2 {
        busy(&scene, "sleeper").await;
        sleeper.signal("STOP").await;
        scene.lanes_of("other", |lanes| lanes == 256).await;
        busy(&scene, "other").await;
        sleeper.signal("CONT").await;
        // Both continue: the paused relay gets lanes again and works on them.
        scene.lanes_of("sleeper", |lanes| lanes > 0).await;
    }
    load.stop().await;
    scene.assert_whole().await;
    sleeper.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_events_in_flight_and_frees_the_lanes_at_once() {
    let lease = Duration::from_secs(30);
    let Some((scene, _nats)) = Scene::start(|config| config.lease_ms = 30_000).await else {
        return;
    };
    let load = Load::start(&scene, 11);
    let leaver = scene.relay("leaver").await;
    busy(&scene, "leaver").await;
    let heir = scene.spawn("heir");
    let asked = Instant::now();
    leaver.stop().await;
    scene.lanes_of("heir", |lanes| lanes == 256).await;
    load.stop().await;
    scene.settled().await;
    assert!(
        asked.elapsed() < lease / 2,
        "taking over took {:?}",
        asked.elapsed()
    );
    scene.assert_whole().await;
    heir.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_stopped_left_nothing_published_but_unsettled() {
    let Some((scene, _nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let load = Load::start(&scene, 13);
    let relay = scene.relay("relay").await;
    let published = "select count(*) from outbox_events where status = 'published'";
    scene.until(published, |events| events > 100).await;
    busy(&scene, "relay").await;
    relay.stop().await;
    load.stop().await;
    let published = scene.count(published).await;
    let stored = messages(&scene.config.sink, STREAM).await.len();
    assert_eq!(
        published, stored as i64,
        "every event in the stream must be settled in the table"
    );
    let held = "select count(*) from outbox_events_lanes where owner is not null";
    assert_eq!(scene.count(held).await, 0, "all lanes must be handed back");
}
