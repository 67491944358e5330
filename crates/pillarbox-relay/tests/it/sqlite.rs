//! The SQLite store: the contract suite, and tests for a file that is shared with an application.

// Clippy allows `unwrap` in functions with a test attribute, but not in the helpers that they call.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod assumptions;
mod file;
mod harness;
mod plans;
mod sharing;

use pillarbox::EventId;
use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    Settlement,
    connect::{self, DatabaseOptions},
    dead::{Actor, DeadFilter, ReplayAs, replay_all},
    store::{Store, StoreErrorKind},
};
use pillarbox_testkit::{
    contract::store::{
        StoreHarness,
        scene::{Scene, dead, page},
    },
    store_contract,
};

use self::harness::SqliteHarness;

mod contract {
    use super::*;

    async fn fresh() -> Option<Arc<dyn StoreHarness>> {
        Some(Arc::new(SqliteHarness::new().await))
    }

    store_contract!(fresh);
}

#[tokio::test]
async fn a_missing_table_says_migrate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let missing = open(&format!("sqlite:{}", path.display()));
    let error = missing.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{}", error.chain());
    assert!(error.to_string().contains("`pillarbox migrate`"), "{error}");
    assert!(!path.exists(), "a check creates no file");

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
    let event = pillarbox::Event::to("t").event_type("T").aggregate("a", "1");
    let error = pillarbox::Outbox::default()
        .enqueue(&mut tx, &event)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("`pillarbox migrate`"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_reported() {
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
async fn a_letter_has_the_id_of_its_event_whatever_text_that_is() {
    let harness = Arc::new(SqliteHarness::new().await);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 3).await;
    let written = ["Order-1".to_owned(), "заказ 7".to_owned(), "x".repeat(300)];
    for (event, id) in events.iter().zip(&written) {
        let update = sqlx::query("update outbox_events set id = ? where seq = ?").bind(id);
        update
            .bind(event.seq)
            .execute(&harness.application)
            .await
            .unwrap();
    }
    let dead = events.iter().map(|event| dead(event, 1)).collect();
    scene
        .settle(Settlement {
            dead,
            ..Settlement::default()
        })
        .await;
    let letters = &harness.store.dead_letters;
    for (id, event) in written.iter().zip(&events) {
        // An id that is too long is cut. Its event can't be delivered.
        let whole = id.len() <= 255;
        let id = EventId::from(&id[..id.len().min(255)]);
        let shown = letters.show(&id).await.unwrap().unwrap();
        assert_eq!((&shown.letter.id, shown.letter.seq), (&id, event.seq));
        assert_eq!(shown.event.map(|event| event.id), whole.then_some(id));
    }
    let (all, actor) = (
        DeadFilter::default(),
        Actor {
            by: "x".into(),
            why: None,
        },
    );
    let done = pillarbox_relay::dead::discard_all(&**letters, &all, &actor, &mut |_| ()).await;
    assert_eq!(done.unwrap(), 3, "the letter with the cut id is counted too");
}

#[tokio::test]
async fn letters_of_events_with_invalid_texts_are_listed() {
    let harness = Arc::new(SqliteHarness::new().await);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 2).await;
    let spoil = "update outbox_events set topic = cast(x'61ff' as text), aggregate_id = cast(x'ff' as text) where seq = ?";
    let spoil = sqlx::query(spoil).bind(events[0].seq);
    spoil.execute(&harness.application).await.unwrap();
    let dead = events.iter().map(|event| dead(event, 1)).collect();
    scene
        .settle(Settlement {
            dead,
            ..Settlement::default()
        })
        .await;
    let letters = &harness.store.dead_letters;
    let (all, actor) = (
        DeadFilter::default(),
        Actor {
            by: "x".into(),
            why: None,
        },
    );
    let listed = letters.list(&all, None, None, 10).await.unwrap();
    assert_eq!((listed.len(), listed[1].topic.as_str()), (2, "a\u{fffd}"));
    assert!(
        letters
            .show(&events[0].event.id)
            .await
            .unwrap()
            .unwrap()
            .event
            .is_none()
    );
    assert_eq!(letters.touched(&all).await.unwrap().count, 2);
    // Its key can't be read, so it has no place in an order: it can't be replayed, and it holds back no other
    // event.
    let replayed = replay_all(&**letters, &all, ReplayAs::Same, &actor, &mut |_| ()).await;
    assert_eq!(replayed.unwrap(), 1);
    let discarded = pillarbox_relay::dead::discard_all(&**letters, &all, &actor, &mut |_| ()).await;
    assert_eq!(discarded.unwrap(), 1);
}

/// PostgreSQL reads such a row the same way. The contract tests what both refuse.
#[tokio::test]
async fn a_row_of_another_program_is_read_or_refused_as_in_other_stores() {
    let harness = Arc::new(SqliteHarness::new().await);
    let scene = Scene::new(harness.clone()).await;
    let events = scene.stored("a", 3).await;
    for (event, column, value) in [
        (&events[0], "headers", r#"{"a": 1, "b": true}"#),
        (&events[1], "headers", r#"{"a b": "x"}"#),
        (&events[2], "event_type", "a\nb"),
    ] {
        let update = format!("update outbox_events set {column} = ? where seq = ?");
        let update = sqlx::query(sqlx::AssertSqlSafe(update))
            .bind(value)
            .bind(event.seq);
        update.execute(&harness.application).await.unwrap();
    }
    let page = scene.reader().next(page(10)).await.unwrap();
    assert_eq!(page.events.len(), 1);
    assert_eq!(page.events[0].event.headers["a"], "1");
    let problems: Vec<&str> = page.unreadable.iter().map(|row| row.problem.as_str()).collect();
    assert!(
        problems[0].contains("header") && problems[1].contains("event_type"),
        "{problems:?}"
    );
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
        assert!(error.to_string().contains("create a new one"), "{error}");
    }
    // A shell that continues after errors would run it like this.
    for statement in admin.migration_sql().split(";\n") {
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        let _ = sqlx::raw_sql(statement).execute(&harness.application).await;
    }
    assert!(
        store.check().await.is_err(),
        "the version must not be overwritten"
    );
}

/// Version 2 differs only in the side table.
#[tokio::test]
async fn an_outbox_of_version_2_is_brought_up_to_date() {
    let harness = SqliteHarness::new().await;
    let run = async |statement: &'static str| sqlx::query(statement).execute(&harness.application).await;
    for statement in [
        "drop table outbox_events_parked",
        "create table outbox_events_parked (seq integer primary key, lane integer not null, key text not null,
         state text not null check (state in ('failed', 'held', 'delayed')), due_at integer,
         failures text not null default '[]') strict",
        "insert into outbox_events_parked (seq, lane, key, state) values (1, 7, 'a', 'held')",
        "update outbox_events_meta set value = '2' where name = 'schema_version'",
    ] {
        run(statement).await.unwrap();
    }
    let (store, admin) = (&harness.store.store, &harness.store.admin);
    assert_eq!(store.check().await.unwrap_err().kind, StoreErrorKind::NotMigrated);
    let done = admin.migrate().await.unwrap();
    assert!(done[0].contains("was at version 2"), "{done:?}");
    store.check().await.unwrap();
    let blocked = run("update outbox_events_parked set state = 'blocked'").await;
    assert_eq!(blocked.unwrap().rows_affected(), 1, "parked events are kept");
    run("drop index outbox_events_parked_key")
        .await
        .expect("its indexes are there");
    assert!(admin.migrate().await.unwrap()[0].contains("up to date"));
}

#[tokio::test]
async fn an_outbox_of_version_3_is_brought_up_to_date() {
    let harness = SqliteHarness::new().await;
    for statement in [
        "drop table outbox_events_pressure",
        "drop table outbox_events_records",
        "create table outbox_events_notices (fingerprint text primary key) strict",
        "update outbox_events_meta set value = '3' where name = 'schema_version'",
    ] {
        sqlx::query(statement)
            .execute(&harness.application)
            .await
            .unwrap();
    }
    let event = pillarbox::Event::to("t").event_type("T").aggregate("a", "1");
    let mut tx = harness.application.begin_with("begin immediate").await.unwrap();
    let refused = pillarbox::Outbox::default().enqueue(&mut tx, &event).await;
    assert!(
        matches!(refused, Err(pillarbox::EnqueueError::NotMigrated { .. })),
        "{refused:?}"
    );
    tx.rollback().await.unwrap();
    let (store, admin) = (&harness.store.store, &harness.store.admin);
    assert_eq!(store.check().await.unwrap_err().kind, StoreErrorKind::NotMigrated);
    let done = admin.migrate().await.unwrap();
    assert!(done[0].contains("was at version 3"), "{done:?}");
    store.check().await.unwrap();
    harness
        .store
        .notices()
        .told()
        .await
        .expect("the table of records exists");
    let old = sqlx::query("select 1 from outbox_events_notices");
    assert!(
        old.execute(&harness.application).await.is_err(),
        "the old table must be dropped"
    );
    let mut tx = harness.application.begin_with("begin immediate").await.unwrap();
    pillarbox::Outbox::default()
        .enqueue(&mut tx, &event)
        .await
        .unwrap();
}

fn open(url: &str) -> Arc<dyn Store> {
    connect::store(&DatabaseOptions::new(url)).unwrap().store
}
