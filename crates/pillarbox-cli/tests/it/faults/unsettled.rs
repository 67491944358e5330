//! A relay dies when its broker has the events and the database does not know it yet.

use pillarbox::follow::Follow;
use pillarbox_testkit::{servers::free_port, wait};

use super::{
    followers::{assert_each_once, read, write},
    harness::{STREAM, Scene, messages},
};

/// Settling waits for this lock. Readers do not.
const LOCK: &str = "lock table outbox_events_log in share mode";
/// Otherwise the server would settle for the dead relay, once the lock is gone.
const FORGET_THE_RELAY: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
     where datname = current_database() and application_name = 'pillarbox'";

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_client_gets_each_event_once_if_a_relay_dies_between_publish_and_settle() {
    let started = Scene::start(|config| {
        config.routes = format!("[{{ topic: 'orders.>', sink: events, stream: {STREAM}, event_log: true }}]");
        config.lease_ms = 1_000;
    });
    let Some((scene, nats)) = started.await else {
        return;
    };
    let [first_address, second_address] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let first = scene.serving_at("first", &first_address).await;
    let mut follower = Follow::new(format!("http://{first_address}"))
        .relay(format!("http://{second_address}"))
        .after(0)
        .start()
        .unwrap();
    let client = tokio::spawn(async move { read(&mut follower, 60).await });

    write(&scene.pool, 0..20).await;
    scene.settled().await;
    let mut lock = scene.pool.begin().await.unwrap();
    sqlx::raw_sql(LOCK).execute(&mut *lock).await.unwrap();
    write(&scene.pool, 20..40).await;
    wait::until("the broker has all events", async || {
        messages(&nats.url(), STREAM).await.len() == 40
    })
    .await;
    first.kill().await;
    sqlx::raw_sql(FORGET_THE_RELAY).execute(&mut *lock).await.unwrap();
    lock.rollback().await.unwrap();
    let published = "select count(*) from outbox_events where status = 'published'";
    assert_eq!(scene.count(published).await, 20, "the others are not settled");

    let second = scene.serving_at("second", &second_address).await;
    write(&scene.pool, 40..60).await;
    assert_each_once(client.await.unwrap(), 0..60);
    let entries = "select count(*) from outbox_events_log where status = 'published'";
    scene.until(entries, |entries| entries == 60).await;
    assert_eq!(messages(&nats.url(), STREAM).await.len(), 60);
    second.stop().await;
}
