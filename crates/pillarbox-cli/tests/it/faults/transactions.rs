//! When a transaction commits, and whether it does.

use pillarbox::{Enqueued, Outbox};
use sqlx::{AssertSqlSafe, Executor};

use super::harness::{PATIENCE, Producer, STREAM, Scene, event, messages};

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_commits_long_after_later_ones_is_delivered() {
    let Some((scene, _nats)) = Scene::start(|config| config.lease_ms = 1_000).await else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    let mut late = producer.begin().await;
    let written = producer.write(&mut late, "late", 3).await.unwrap();
    // Other events pass it. The reader's snapshots and the low marks advance.
    for n in 0..20 {
        producer.place(&format!("key-{}", n % 4), 2).await;
        scene.settled().await;
    }
    // A relay that starts while the transaction is open knows about it only from the low marks.
    relay.stop().await;
    let next = scene.relay("next").await;
    producer.place("key-0", 1).await;
    scene.settled().await;
    assert_eq!(messages(&scene.config.sink, STREAM).await.len(), 41);

    late.commit().await.unwrap();
    producer.committed(&written);
    scene.assert_whole().await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_between_commits_is_never_seen() {
    let Some((scene, _nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    for _ in 0..10 {
        producer.place("key", 1).await;
        let mut given_up = producer.begin().await;
        let written = producer.write(&mut given_up, "key", 2).await.unwrap();
        given_up.rollback().await.unwrap();
        producer.rolled_back(&written);
        let mut partly = producer.begin().await;
        let kept = producer.write(&mut partly, "key", 1).await.unwrap();
        partly.execute("savepoint before_the_second").await.unwrap();
        let dropped = producer.write(&mut partly, "other", 1).await.unwrap();
        partly
            .execute("rollback to savepoint before_the_second")
            .await
            .unwrap();
        partly.commit().await.unwrap();
        producer.committed(&kept);
        producer.rolled_back(&dropped);
    }
    scene.assert_whole().await;
    assert_eq!(scene.ledger.committed_count(), 20);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_is_delivered_when_it_commits_and_not_when_it_is_rolled_back() {
    let Some((scene, _nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    // The names of prepared transactions are shared by the whole server.
    let name = uuid::Uuid::now_v7();
    let mut prepared = Vec::new();
    for fate in ["commit", "rollback"] {
        let mut tx = producer.begin().await;
        let written = producer.write(&mut tx, fate, 2).await.unwrap();
        tx.execute(AssertSqlSafe(format!("prepare transaction '{name}-{fate}'")))
            .await
            .unwrap();
        // The session has no transaction any more. This only updates the client's state.
        let _ = tx.rollback().await;
        prepared.push(written);
        producer.place("key", 2).await;
    }
    scene.settled().await;
    assert_eq!(messages(&scene.config.sink, STREAM).await.len(), 4);
    for (fate, written) in ["commit", "rollback"].into_iter().zip(&prepared) {
        scene
            .pool
            .execute(AssertSqlSafe(format!("{fate} prepared '{name}-{fate}'")))
            .await
            .unwrap();
        if fate == "commit" {
            producer.committed(written);
        } else {
            producer.rolled_back(written);
        }
        producer.place("key", 1).await;
    }
    scene.assert_whole().await;
    assert_eq!(scene.ledger.committed_count(), 8);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_enqueued_twice_is_delivered_once_and_reported() {
    let Some((scene, _nats)) = Scene::start(|_| {}).await else {
        return;
    };
    let producer = Producer::new(&scene);
    let relay = scene.relay("relay").await;
    let twice = event("twice", 1);
    let enqueue = async || {
        let mut tx = producer.begin().await;
        let enqueued = Outbox::default().enqueue(&mut tx, &twice).await.unwrap();
        tx.commit().await.unwrap();
        enqueued
    };
    assert_eq!(enqueue().await, Enqueued::New);
    scene.ledger.committed(twice.id.clone(), "twice", 1);
    assert_eq!(
        enqueue().await,
        Enqueued::Duplicate,
        "a duplicate before the delivery"
    );
    scene.settled().await;
    assert_eq!(
        enqueue().await,
        Enqueued::Duplicate,
        "a duplicate after the delivery"
    );
    let id = twice.id.to_string();
    let by_command = [
        "enqueue",
        "--topic",
        "orders.placed",
        "--type",
        "Placed",
        "--aggregate-type",
        "order",
    ];
    let by_command = [&by_command[..], &["--aggregate-id", "twice", "--id", &id]].concat();
    let said = scene.done(&by_command).await;
    assert!(said.contains("duplicate") && said.contains(&id), "{said}");

    // Two transactions write the same id at the same time. The second waits until the first ends.
    let both = event("both", 1);
    let (mut first, mut second) = (producer.begin().await, producer.begin().await);
    assert_eq!(
        Outbox::default().enqueue(&mut first, &both).await.unwrap(),
        Enqueued::New
    );
    let waiting = tokio::spawn({
        let both = both.clone();
        async move {
            let enqueued = Outbox::default().enqueue(&mut second, &both).await.unwrap();
            second.commit().await.unwrap();
            enqueued
        }
    });
    let blocked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    scene.until(blocked, |sessions| sessions == 1).await;
    first.commit().await.unwrap();
    scene.ledger.committed(both.id, "both", 1);
    let second = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(second, Enqueued::Duplicate);
    scene.assert_whole().await;
    relay.stop().await;
}
