//! The line of the crate `pillarbox` where an application writes an event.

use pillarbox::{EnqueueError, Outbox};
use pillarbox_relay::connect::{self, DatabaseOptions};
use pillarbox_testkit::servers;
use sqlx::{PgPool, SqlitePool, sqlite::SqliteConnectOptions};

use super::{Log, event};

const LINE: &str = "outbox_event_enqueued";

async fn migrated(url: &str) {
    let store = connect::store(&DatabaseOptions::new(url)).unwrap();
    store.admin.migrate().await.unwrap();
}

/// Two events and a copy of the first, then one that is refused. The transaction rolls back.
async fn assert_logs_new_events(tx: &mut impl pillarbox::Transaction) {
    let (log, _guard) = Log::start();
    let outbox = Outbox::default();
    let events = [event(0), event(1)];
    outbox.enqueue_all(tx, &events).await.unwrap();
    outbox.enqueue(tx, &events[0]).await.unwrap();
    let refused = outbox.enqueue(tx, &event(2).aggregate_version(-1)).await;
    assert!(matches!(refused, Err(EnqueueError::Refused { .. })));

    let lines = log.lines(LINE);
    let ids: Vec<&str> = lines
        .iter()
        .map(|line| line["event_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, events.each_ref().map(|event| event.id.to_string()));
    for (n, line) in lines.iter().enumerate() {
        let said = ["level", "event_type", "aggregate_type", "aggregate_id", "topic"].map(|name| &line[name]);
        let aggregate = format!("o-{n}");
        assert_eq!(said, ["DEBUG", "Placed", "order", &aggregate, "shop.placed"]);
    }
}

#[tokio::test]
async fn an_application_on_sqlite_logs_each_new_event_without_its_payload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outbox.db");
    migrated(&format!("sqlite:{}", path.display())).await;
    let options = SqliteConnectOptions::new().filename(&path);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    assert_logs_new_events(&mut pool.begin().await.unwrap()).await;
}

#[tokio::test]
async fn an_application_on_postgres_logs_each_new_event_without_its_payload() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let url = server.database().await;
    migrated(&url).await;
    let pool = PgPool::connect(&url).await.unwrap();
    assert_logs_new_events(&mut pool.begin().await.unwrap()).await;
}
