//! Consumers with their effects in SQLite and in MongoDB.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use pillarbox::{
    Inbox,
    consume::{Consumer, JetStream, Options},
};
use pillarbox_testkit::{consumer::events, servers, servers::Nats};
use sqlx::{Row, SqlitePool, sqlite::SqliteConnectOptions};

use super::harness::{Published, publish_nats, stream, until};

const EVENTS: usize = 400;

fn quick(options: &mut Options) {
    options.backoff_base = Duration::from_millis(10);
    options.backoff_max = Duration::from_millis(50);
    options.attempts_max = 20;
}

/// Checks that every event has its effect once, in order per key.
fn assert_whole(effects: &[(String, i64)], published: &[Published]) {
    assert_eq!(effects.len(), published.len());
    let mut last = std::collections::HashMap::new();
    for (key, version) in effects {
        let last = last.entry(key).or_insert(0);
        assert_eq!(*version, *last + 1, "of {key}");
        *last = *version;
    }
}

/// A third of the first attempts fail after their effect was written.
fn fails(version: i64, attempt: u32) -> bool {
    version % 3 == 0 && attempt == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_in_sqlite_happen_once_and_in_order() {
    let Some(nats) = Nats::start().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteConnectOptions::new()
        .filename(folder.path().join("effects.db"))
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(10));
    let pool = SqlitePool::connect_with(file).await.unwrap();
    Inbox::default().migrate(&pool).await.unwrap();
    sqlx::raw_sql("create table effects (n integer primary key, key text, version integer)")
        .execute(&pool)
        .await
        .unwrap();
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(EVENTS, 20, 50);
    publish_nats(&context, "THINGS.changed", &events).await;
    let things = JetStream::new(context, "THINGS").ack_wait(Duration::from_secs(300));
    let consumer = Consumer::new("effects", pool.clone()).options(quick);
    let count = async || {
        let count: i64 = sqlx::query_scalar("select count(*) from effects")
            .fetch_one(&pool)
            .await
            .unwrap();
        count as usize
    };
    // The handle is dropped without `stop`, so events that were done and not acknowledged are delivered
    // again.
    for wanted in [EVENTS / 2, EVENTS] {
        let running = consumer
            .start_fn(things.clone(), |event, context, tx| {
                Box::pin(async move {
                    let version = event.aggregate_version.unwrap();
                    sqlx::query("insert into effects (key, version) values (?1, ?2)")
                        .bind(&context.key)
                        .bind(version)
                        .execute(&mut **tx)
                        .await?;
                    if fails(version, context.attempt) {
                        Err("as told".into())
                    } else {
                        Ok(())
                    }
                })
            })
            .await
            .unwrap();
        until("all effects exist", async || count().await >= wanted).await;
        drop(running);
    }
    let rows = sqlx::query("select key, version from effects order by n")
        .fetch_all(&pool)
        .await
        .unwrap();
    let effects: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_whole(&effects, &events);
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_in_mongodb_happen_once_and_in_order() {
    let Some(nats) = Nats::start().await else { return };
    let Some(mongo) = servers::mongo().await else {
        return;
    };
    let client = mongodb::Client::with_uri_str(mongo.database()).await.unwrap();
    let database = client.default_database().unwrap();
    Inbox::default().migrate(&database).await.unwrap();
    let effects = database.collection::<Document>("effects");
    effects
        .create_index(mongodb::IndexModel::builder().keys(doc! { "key": 1 }).build())
        .await
        .unwrap();
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(EVENTS, 20, 51);
    publish_nats(&context, "THINGS.changed", &events).await;
    let things = JetStream::new(context, "THINGS").ack_wait(Duration::from_secs(300));
    let consumer = Consumer::new("effects", database.clone()).options(quick);
    let run = async || {
        let effects = effects.clone();
        consumer
            .start_fn(things.clone(), move |event, context, session| {
                let effects = effects.clone();
                Box::pin(async move {
                    let version = event.aggregate_version.unwrap();
                    // The number of the key's effects so far is the place of this one.
                    let key = doc! { "key": &context.key };
                    let before = effects.count_documents(key).session(&mut *session).await?;
                    let effect = doc! { "key": &context.key, "version": version, "n": before as i64 };
                    effects.insert_one(effect).session(session).await?;
                    if fails(version, context.attempt) {
                        Err("as told".into())
                    } else {
                        Ok(())
                    }
                })
            })
            .await
            .unwrap()
    };
    // Two consumers at the same time: they try the same events, and write conflicts must not count as
    // failures.
    let (first, second) = (run().await, run().await);
    until("all effects exist", async || {
        effects.count_documents(doc! {}).await.unwrap() >= EVENTS as u64
    })
    .await;
    first.stop().await.unwrap();
    second.stop().await.unwrap();
    let mut found = effects.find(doc! {}).sort(doc! { "n": 1 }).await.unwrap();
    let mut all = Vec::new();
    while found.advance().await.unwrap() {
        let effect = found.deserialize_current().unwrap();
        all.push((
            effect.get_str("key").unwrap().to_owned(),
            effect.get_i64("version").unwrap(),
        ));
    }
    assert_whole(&all, &events);
}
