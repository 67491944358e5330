//! The SQLite store: the whole contract, and what sharing a file with an application asks beyond it.

// Clippy knows a test by its attribute, not the functions it calls.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod harness;
mod plans;
mod sharing;

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    connect::{self, DatabaseOptions},
    store::{Store, StoreErrorKind},
};
use pillarbox_testkit::contract::store::{self, StoreHarness};

use self::harness::SqliteHarness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_its_contract() {
    store::all(|| async { Arc::new(SqliteHarness::new().await) as Arc<dyn StoreHarness> }).await;
}

#[tokio::test]
async fn a_missing_table_says_migrate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let missing = open(&format!("sqlite:{}", path.display()));
    let error = missing.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{}", error.chain());
    assert!(error.to_string().contains("`pillarbox migrate`"), "{error}");
    assert!(!path.exists(), "looking makes no file");

    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    sqlx::query("create table orders (id integer)")
        .execute(&pool)
        .await
        .unwrap();
    for error in [
        missing.check().await.unwrap_err(),
        missing
            .take_lanes(uuid::Uuid::now_v7(), 1, Duration::from_secs(1))
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{}", error.chain());
        assert!(error.to_string().contains("`pillarbox migrate`"), "{error}");
    }
    let mut tx = pool.begin().await.unwrap();
    let event = pillarbox::Event::new("t", "T", "a", "1");
    let error = pillarbox::Outbox::default()
        .enqueue(&mut tx, &event)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("`pillarbox migrate`"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(
        &path,
        "not a database, but long enough to have the header of one.\n".repeat(100),
    )
    .unwrap();
    let store = open(&format!("sqlite://{}", path.display()));
    for error in [
        store.check().await.unwrap_err(),
        store
            .take_lanes(uuid::Uuid::now_v7(), 1, Duration::from_secs(1))
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{}", error.chain());
        assert!(error.to_string().contains("not an SQLite database"), "{error}");
    }
}

#[tokio::test]
async fn an_address_without_a_shareable_file_is_refused() {
    for url in [
        "sqlite::memory:",
        "sqlite://:memory:",
        "sqlite:x.db?mode=memory",
        "sqlite:",
        "sqlite:x?mode=odd",
    ] {
        let error = connect::store(&DatabaseOptions::new(url)).err().expect(url);
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{url}");
        assert!(error.to_string().contains("sqlite:path"), "{url}: {error}");
    }
    let mut options = DatabaseOptions::new("sqlite:x.db");
    options.tables = pillarbox::table::Tables::new("shop.outbox", None).unwrap();
    assert!(connect::store(&options).is_err(), "SQLite has no schemas");
}

#[tokio::test]
async fn an_outbox_of_an_earlier_version_is_left_as_it_is() {
    let harness = SqliteHarness::new().await;
    for statement in [
        "drop table outbox_events_dead",
        "drop table outbox_events_recoveries",
        "create table outbox_events_dead (seq integer primary key, id text not null) strict",
        "update outbox_events_meta set value = '1' where name = 'schema_version'",
    ] {
        sqlx::query(statement)
            .execute(&harness.application)
            .await
            .unwrap();
    }
    let (store, admin) = (&harness.store.store, &harness.store.admin);
    for error in [
        store.check().await.unwrap_err(),
        admin.migrate().await.unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{}", error.chain());
        assert!(error.to_string().contains("version 1"), "{error}");
        assert!(error.to_string().contains("make a new one"), "{error}");
    }
    // As a shell would run it that goes on after an error.
    for statement in admin.migration_sql().split(";\n") {
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        let _ = sqlx::raw_sql(statement).execute(&harness.application).await;
    }
    assert!(store.check().await.is_err(), "the version was not written over");
}

fn open(url: &str) -> Arc<dyn Store> {
    connect::store(&DatabaseOptions::new(url)).unwrap().store
}
