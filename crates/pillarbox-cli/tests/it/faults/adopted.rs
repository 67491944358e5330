//! Adopted tables: they are adopted while their producer writes, relays are killed under load, and the broker restarts.
//! Everything arrives in the order of its key, and the rows say so.

use std::collections::{BTreeMap, BTreeSet};

use pillarbox_testkit::servers::{self, Nats};
use sqlx::{AssertSqlSafe, PgPool};

use super::harness::{Config, STREAM, Scene, messages};
use crate::tables::{self, Table};

const EVENTS: u32 = 400;
const KILLS: u32 = 10;

async fn run(pool: &PgPool, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(pool)
        .await
        .unwrap_or_else(|error| panic!("{error}: {sql}"));
}

/// Kills relays while the old producer goes on, and restarts the broker in between.
async fn survives_kills(table: Table, from: &str) {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let Some(mut nats) = Nats::start().await else {
        return;
    };
    let mut config = Config::new(&postgres.database().await, &nats.url());
    config.table = table.name.to_owned();
    config.preset = Some(table.preset.to_owned());
    config.lease_ms = 500;
    config.routes =
        format!("[{{ topic: '>', sink: events, stream: {STREAM}, shape: {{ preset: payload }} }}]");
    config.streams = format!("[{{ name: {STREAM}, subjects: ['orders.>', 'outbox.>'] }}]");
    let scene = Scene::with(config);
    run(&scene.pool, table.ddl).await;
    scene.done(&["streams", "apply"]).await;
    // Rows that show no state are delivered from the adoption on.
    let is_adopted_first = from == "now";
    if is_adopted_first {
        scene.done(&["adopt", "--apply", "--from", from]).await;
    }

    let own = format!("{}_pillarbox", table.name);
    let waiting = format!("select count(*) from {own} where status <> 'published'");
    let produced = async {
        let mut ids = BTreeSet::new();
        for n in 1..=EVENTS {
            let sql = format!("{} returning {}", table.insert(n), table.id);
            let id: String = sqlx::query_scalar(AssertSqlSafe(sql))
                .fetch_one(&scene.pool)
                .await
                .unwrap();
            ids.insert(id);
            tokio::time::sleep(std::time::Duration::from_millis(15)).await;
        }
        ids
    };
    let killed = async {
        if !is_adopted_first {
            let rows = format!("select count(*) from {}", table.name);
            scene.until(&rows, |now| now > 40).await;
            scene.done(&["adopt", "--apply", "--from", from]).await;
        }
        for n in 0..KILLS {
            let relay = scene.relay("killed").await;
            // It delivers something, and is killed in the middle of more.
            let published = format!("select count(*) from {own} where status = 'published'");
            let before = scene.count(&published).await;
            scene
                .until(&published, |now| now > before || now == i64::from(EVENTS))
                .await;
            relay.kill().await;
            if n == KILLS / 2 {
                nats.restart().await;
            }
        }
    };
    let (ids, ()) = tokio::join!(produced, killed);
    let last = scene.relay("last").await;
    scene.until(&waiting, |left| left == 0).await;
    last.stop().await;

    let mut arrived = BTreeSet::new();
    let mut last_of = BTreeMap::new();
    let messages = messages(&nats.url(), STREAM).await;
    for message in &messages {
        let headers = message.headers.as_ref().unwrap();
        arrived.insert(headers.get("Nats-Msg-Id").unwrap().to_string());
        let payload: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        let n = payload["n"].as_u64().unwrap();
        let before = last_of.insert(n % table.keys, n);
        assert!(before < Some(n), "{n} after {before:?}");
    }
    assert_eq!(arrived, ids);
    assert_eq!(messages.len(), ids.len(), "JetStream drops copies by the id");
    let wrong = format!(
        "select count(*) from {} where not ({})",
        table.name, table.delivered
    );
    assert_eq!(
        scene.count(&wrong).await,
        0,
        "rows that do not say that they were delivered"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processed_flag_survives_ten_kills_and_a_restart_of_the_broker() {
    survives_kills(tables::PROCESSED_FLAG, "everything").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_words_survive_ten_kills_and_a_restart_of_the_broker() {
    survives_kills(tables::STATUS_WORDS, "everything").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn project_events_survive_ten_kills_and_a_restart_of_the_broker() {
    survives_kills(tables::PROJECT_EVENTS, "everything").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_outbox_survives_ten_kills_and_a_restart_of_the_broker() {
    survives_kills(tables::STORAGE_OUTBOX, "everything").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_for_debezium_survive_ten_kills_and_a_restart_of_the_broker() {
    survives_kills(tables::DEBEZIUM, "now").await;
}
