//! The tables: missing, restored from another cluster, created with `psql`.

use pillarbox_relay::{
    Store,
    connect::DatabaseOptions,
    store::{Admin, StoreErrorKind, postgres::PostgresStore},
};
use pillarbox_testkit::{
    proxy::{Fault, Proxy},
    servers, wait,
};

use super::{drain, event, ids, page, place, written};

#[tokio::test]
async fn a_missing_table_says_pillarbox_migrate() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let store = PostgresStore::open(&DatabaseOptions::new(server.database().await)).unwrap();
    let errors = [
        store.check().await.unwrap_err(),
        store
            .take_lanes(uuid::Uuid::now_v7(), 1, super::LEASE)
            .await
            .unwrap_err(),
        store.status().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, StoreErrorKind::NotMigrated);
        assert!(error.to_string().contains("pillarbox migrate"), "{error}");
    }
    let error = store
        .enqueue(&Default::default(), &[event("a")])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("pillarbox migrate"), "{error}");
}

#[tokio::test]
async fn a_failed_connection_gives_its_reason() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let nowhere = format!("postgres://postgres@127.0.0.1:{}/x", servers::free_port());
    let cases = [
        (nowhere, StoreErrorKind::Away),
        (server.url_of("no_such_database"), StoreErrorKind::Misconfigured),
        (
            server.url().replace("postgres@", "nobody@"),
            StoreErrorKind::Misconfigured,
        ),
    ];
    for (url, kind) in cases {
        let mut options = DatabaseOptions::new(&url);
        options.connect_timeout = std::time::Duration::from_secs(2);
        let error = PostgresStore::open(&options).unwrap().check().await.unwrap_err();
        assert_eq!(error.kind, kind, "{url}: {}", error.chain());
    }
    assert!(PostgresStore::open(&DatabaseOptions::new("postgres://[")).is_err());
}

/// A byte without an equivalent in UTF-8 would make its page unreadable and stop all delivery.
#[tokio::test]
async fn a_database_that_does_not_hold_utf8_is_refused() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let pool = sqlx::PgPool::connect(&server.database().await).await.unwrap();
    let name = format!("win_{}", uuid::Uuid::now_v7().simple());
    let create = format!("create database {name} encoding 'WIN1252' template template0");
    sqlx::raw_sql(sqlx::AssertSqlSafe(create))
        .execute(&pool)
        .await
        .unwrap();
    let store = PostgresStore::open(&DatabaseOptions::new(server.url_of(&name))).unwrap();
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{}", error.chain());
    assert!(error.to_string().contains("encoding 'UTF8'"), "{error}");
}

#[tokio::test]
async fn the_printed_migration_makes_the_same_outbox() {
    let Some(place) = place().await else { return };
    let Some(server) = servers::postgres().await else {
        return;
    };
    let url = server.database().await;
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    for _ in 0..2 {
        sqlx::raw_sql(sqlx::AssertSqlSafe(place.store.migration_sql()))
            .execute(&pool)
            .await
            .unwrap();
    }
    let store = PostgresStore::open(&DatabaseOptions::new(&url)).unwrap();
    store.check().await.unwrap();
    assert_eq!(
        store.migrate().await.unwrap(),
        ["nothing to do: version 8 is there"]
    );
}

/// Version 3 lacks only the function.
#[tokio::test]
async fn an_outbox_of_version_3_is_brought_up_to_date() {
    let Some(place) = place().await else { return };
    place.commit(&["a"]).await;
    place
        .run("drop schema pillarbox cascade; update outbox_events_meta set version = 3")
        .await;
    let error = place.store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{error}");
    let done = place.store.migrate().await.unwrap();
    assert!(done[0].contains("was at version 3"), "{done:?}");
    place.store.check().await.unwrap();
    place.run("select pillarbox.enqueue('t', 'k', 'T', '{}')").await;
    assert_eq!(place.number("select count(*) from outbox_events").await, 2);
}

/// Version 4 does not record which table its low marks belong to, so they are not used.
#[tokio::test]
async fn an_outbox_of_version_4_is_brought_up_to_date() {
    let Some(place) = place().await else { return };
    let events = place.commit(&["a"]).await;
    place
        .run(
            "drop trigger outbox_events_own_txid on outbox_events;
             drop trigger outbox_events_truncated on outbox_events;
             drop index outbox_events_txid;
             create index outbox_events_txid on outbox_events (txid);
             alter table outbox_events_leases drop column seen_xid;
             alter table outbox_events_meta drop column events_file, drop column seq_file;
             update outbox_events_leases set low_mark = 1;
             drop table outbox_events_records;
             create table outbox_events_notices (fingerprint text primary key);
             update outbox_events_meta set version = 4",
        )
        .await;
    let error = place.store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{error}");
    let done = place.store.migrate().await.unwrap();
    assert!(done[0].contains("was at version 4"), "{done:?}");
    place.store.check().await.unwrap();
    let mut reader = place.store.reader(&place.take_again().await);
    assert_eq!(ids(&drain(&mut reader, page(10)).await), written(&events));
    let tables = "select count(*) from pg_tables where tablename in ('outbox_events_records', 'outbox_events_notices')";
    assert_eq!(
        place.number(tables).await,
        1,
        "the table of records must replace the old one"
    );
}

/// Ids of version 7 are UUIDs. Applications that were built before may send them as such.
#[tokio::test]
async fn an_outbox_of_version_7_gets_ids_of_text() {
    let Some(place) = place().await else { return };
    let events = place.commit(&["a"]).await;
    place
        .run(
            "alter table outbox_events alter column id drop default, alter column id type uuid using gen_random_uuid(),
                                       alter column id set default gen_random_uuid();
             alter table outbox_events_dead alter column id type uuid using gen_random_uuid();
             alter table outbox_events_recoveries alter column new_id type uuid using null;
             alter table outbox_events_log alter column id type uuid using null;
             update outbox_events_meta set version = 7",
        )
        .await;
    assert_eq!(events.len(), 1);
    let done = place.store.migrate().await.unwrap();
    assert!(done[0].contains("was at version 7"), "{done:?}");
    place.store.check().await.unwrap();
    let insert = "insert into outbox_events (id, topic, event_type, aggregate_type, aggregate_id, payload) ";
    place
        .run(&format!(
            "{insert} select gen_random_uuid(), 't', 'T', 'a', 'a', '{{}}'"
        ))
        .await;
    place
        .run(&format!(
            "{insert} values ('payout-42', 't', 'T', 'a', 'a', '{{}}')"
        ))
        .await;
    place
        .run("select pillarbox.enqueue('t', 'a', 'T', '{}', id => 'payout-43')")
        .await;
    let mut reader = place.store.reader(&place.take_again().await);
    let read = ids(&drain(&mut reader, page(10)).await);
    assert!(read[..2].iter().all(|id| id.as_uuid().is_some()), "{read:?}");
    assert_eq!(read[2..], ["payout-42", "payout-43"].map(Into::into));
}

/// Version 2 also differs in the side table.
#[tokio::test]
async fn an_outbox_of_version_2_is_brought_up_to_date() {
    let Some(place) = place().await else { return };
    place.commit(&["a"]).await;
    place
        .run(
            "insert into outbox_events_parked (seq, lane, key, state) values (1, 7, 'a', 'held');
             drop index outbox_events_parked_blocked;
             alter table outbox_events_parked
                 drop constraint outbox_events_parked_state,
                 add constraint outbox_events_parked_state check (state in ('failed', 'held', 'delayed'));
             update outbox_events_meta set version = 2",
        )
        .await;
    let error = place.store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{error}");
    let done = place.store.migrate().await.unwrap();
    assert!(done[0].contains("was at version 2"), "{done:?}");
    place.store.check().await.unwrap();
    place
        .run("update outbox_events_parked set state = 'blocked'")
        .await;
    assert_eq!(place.number("select count(*) from outbox_events").await, 1);
    assert!(place.store.migrate().await.unwrap()[0].contains("nothing to do"));
}

#[tokio::test]
async fn a_foreign_table_is_not_changed() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let url = server.database().await;
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query("create table outbox_events (id int)")
        .execute(&pool)
        .await
        .unwrap();
    let store = PostgresStore::open(&DatabaseOptions::new(&url)).unwrap();
    assert_eq!(store.migrate().await.unwrap_err().kind, StoreErrorKind::Refused);
    assert_eq!(store.check().await.unwrap_err().kind, StoreErrorKind::NotMigrated);
}

#[tokio::test]
async fn an_outbox_restored_into_another_cluster_is_rebased() {
    let Some(place) = place().await else { return };
    let events = place.commit(&["a", "b"]).await;
    // A dump of a busier cluster has such values.
    place
        .run(
            "update outbox_events set txid = (pg_current_xact_id()::text::bigint + 1000000)::text::xid8;
             update outbox_events_meta set system_identifier = 1",
        )
        .await;
    place.store.check().await.unwrap();
    assert_eq!(
        place
            .number("select count(*) from outbox_events where txid = '3'")
            .await,
        2
    );
    assert_eq!(
        place
            .number("select count(*) from outbox_events_meta where system_identifier <> 1")
            .await,
        1
    );
    let mut reader = place.reader();
    assert_eq!(ids(&drain(&mut reader, page(10)).await), written(&events));
    for _ in 0..3 {
        assert!(drain(&mut reader, page(10)).await.is_empty(), "each once");
    }
    let more = place.commit(&["c"]).await;
    assert_eq!(ids(&drain(&mut reader, page(10)).await), written(&more));
}

#[tokio::test]
async fn a_connection_that_has_gone_silent_is_given_up() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let url = server.database().await;
    PostgresStore::open(&DatabaseOptions::new(url.clone()))
        .unwrap()
        .migrate()
        .await
        .unwrap();
    let proxy = Proxy::in_front_of(&url).await;
    let mut options = DatabaseOptions::new(proxy.through(&url));
    options.answer_timeout = std::time::Duration::from_millis(500);
    let store = PostgresStore::open(&options).unwrap();
    store.check().await.unwrap();

    proxy.set(Fault::BlackHole).await;
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Away, "{}", error.chain());

    proxy.set(Fault::Pass).await;
    wait::until("the store works again on a new connection", async || {
        store.check().await.is_ok()
    })
    .await;
}
