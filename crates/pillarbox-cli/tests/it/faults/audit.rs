//! A broker that loses what it acknowledged: the relay notices.

use async_nats::jetstream;
use pillarbox_testkit::wait;

use super::harness::{Producer, STREAM, Scene, healthz_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_vanishes_from_its_stream_turns_health_red_and_is_named() {
    let Some((scene, nats)) = Scene::start(|config| {
        config.monitoring = "{ audit_interval_seconds: 1 }".into();
    })
    .await
    else {
        return;
    };
    let (relay, address) = scene.serving("relay").await;
    healthz_until(&address, |code, _| code == 200).await;
    let jetstream = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    // An audit may look before the message is deleted, so some rounds may be needed.
    let producer = Producer::new(&scene);
    let said = wait::until_ok(async || {
        producer.place("key", 3).await;
        scene.settled().await;
        let mut stream = jetstream.get_stream(STREAM).await.unwrap();
        let last = stream.info().await.unwrap().state.last_sequence;
        stream.delete_message(last - 1).await.unwrap();
        let log = relay.log();
        if log.contains("outbox_audit_lost") {
            Ok(log)
        } else {
            Err("no loss was found")
        }
    })
    .await;
    assert!(
        said.contains("ERROR outbox_audit_lost") && said.contains("sink=\"events\""),
        "{said}"
    );
    let health = healthz_until(&address, |code, body| {
        code == 503 && body["parts"]["data"]["healthy"] == false
    })
    .await;
    let problem = health["parts"]["data"]["problems"][0].as_str().unwrap();
    assert!(
        problem.contains("delivered events are gone from the sink events"),
        "{problem}"
    );
    let id = problem.rsplit([' ', ',']).next().unwrap();
    let sql = format!("select count(*) from outbox_events where id = '{id}' and status = 'published'");
    assert_eq!(scene.count(&sql).await, 1, "{problem}");
    wait::until_ok(async || {
        let status = scene.done(&["status"]).await;
        if status.contains("the sink events has lost events") {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    relay.stop().await;
}
