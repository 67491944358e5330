//! A relay that makes no progress reports it, starts over, and then exits, so that its supervisor restarts
//! it.

use super::harness::{Producer, Scene, healthz_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_relay_reports_it_and_ends_and_the_next_one_delivers() {
    // A statement may take 30 s, so the relay does not take this for an outage of the database.
    let Some((scene, _nats)) = Scene::start(|config| config.stall_after_seconds = 5).await else {
        return;
    };
    let (mut relay, address) = scene.serving("relay").await;
    healthz_until(&address, |code, _| code == 200).await;
    let mut operator = scene.pool.begin().await.unwrap();
    sqlx::query("lock table outbox_events in access exclusive mode")
        .execute(&mut *operator)
        .await
        .unwrap();

    relay.says("the relay makes no progress: starting over").await;
    let said = healthz_until(&address, |code, body| code == 503 && body["relay"] == "stalled").await;
    let waiting_for = said["waiting_for"].as_str().unwrap();
    assert!(waiting_for.contains("waiting for the database"), "{said}");
    assert!(
        !relay.ended().await.success(),
        "it must exit with an error, so that a supervisor restarts it"
    );
    assert!(
        relay.log().contains("waiting for the database"),
        "{}",
        relay.log()
    );

    operator.rollback().await.unwrap();
    Producer::new(&scene).place("key", 3).await;
    let (relay, address) = scene.serving("next").await;
    scene.assert_whole().await;
    healthz_until(&address, |code, _| code == 200).await;
    relay.stop().await;
}
