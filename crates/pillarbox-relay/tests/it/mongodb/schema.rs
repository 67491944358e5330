//! Creating the outbox, and the errors if it is missing or can't be created.

use std::time::Duration;

use mongodb::{
    Client,
    bson::{Document, Timestamp, doc},
};
use pillarbox::{EnqueueError, Event, Outbox, table::Tables};
use pillarbox_relay::{
    connect::{self, DatabaseOptions},
    store::{Store, StoreErrorKind},
};
use pillarbox_testkit::servers::{self, Mongo, MongoOptions};

use super::harness::MongoHarness;

#[tokio::test]
async fn a_standalone_server_is_refused_with_advice() {
    let options = MongoOptions {
        members: 0,
        ..MongoOptions::default()
    };
    let Some(server) = Mongo::start_with(options).await else {
        return;
    };
    let store = connect::store(&DatabaseOptions::new(server.database())).unwrap();
    for error in [
        store.store.check().await.unwrap_err(),
        store.admin.migrate().await.unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{}", error.chain());
        assert!(
            error.to_string().contains("replica set") && error.to_string().contains("--replSet"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_missing_outbox_says_migrate() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let url = server.database();
    let store = connect::store(&DatabaseOptions::new(&url)).unwrap();
    let error = store.store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated, "{}", error.chain());
    assert!(error.to_string().contains("`pillarbox migrate`"), "{error}");
    let client = Client::with_uri_str(&url).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let error = Outbox::default()
        .enqueue(&mut session, &event())
        .await
        .unwrap_err();
    assert!(matches!(error, EnqueueError::NotMigrated { .. }), "{error}");
    assert!(error.to_string().contains("`pillarbox migrate`"), "{error}");
    session.abort_transaction().await.unwrap();
    let made = client
        .default_database()
        .unwrap()
        .list_collection_names()
        .await
        .unwrap();
    assert!(made.is_empty(), "a check must create nothing: {made:?}");
}

#[tokio::test]
async fn a_session_without_a_transaction_is_refused_and_stays_usable() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let outbox = Outbox::default();
    let mut session = harness.application.start_session().await.unwrap();
    let error = outbox.enqueue(&mut session, &event()).await.unwrap_err();
    assert!(matches!(error, EnqueueError::NoTransaction), "{error}");
    assert!(error.to_string().contains("start_transaction"), "{error}");
    session.start_transaction().await.unwrap();
    outbox.enqueue(&mut session, &event()).await.unwrap();
    session.commit_transaction().await.unwrap();
    // The transaction before has ended.
    let error = outbox.enqueue(&mut session, &event()).await.unwrap_err();
    assert!(matches!(error, EnqueueError::NoTransaction), "{error}");
    assert_eq!(harness.events().count_documents(doc! {}).await.unwrap(), 1);
}

#[tokio::test]
async fn an_address_without_a_database_is_refused() {
    let error = connect::store(&DatabaseOptions::new("mongodb://127.0.0.1:1/?replicaSet=rs0"))
        .err()
        .unwrap();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("mongodb://host/shop"), "{error}");
    let error = connect::store(&DatabaseOptions::new("mongodb://app:geheim@[x/shop"))
        .err()
        .unwrap();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(!error.chain().contains("geheim"), "{}", error.chain());
}

#[tokio::test]
async fn a_table_with_a_dot_is_in_the_database_before_it() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let other = server.database();
    let name = other
        .rsplit('/')
        .next()
        .unwrap()
        .split('?')
        .next()
        .unwrap()
        .to_owned();
    let mut options = DatabaseOptions::new(server.url_of(""));
    options.tables = Tables::new(&format!("{name}.letters"), None).unwrap();
    let store = connect::store(&options).unwrap();
    store.admin.migrate().await.unwrap();
    store.store.check().await.unwrap();
    let client = Client::with_uri_str(&options.url).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let outbox = Outbox::new(options.tables.clone(), pillarbox::Limits::default());
    outbox.enqueue(&mut session, &event()).await.unwrap();
    let error = Outbox::default()
        .enqueue(&mut session, &event())
        .await
        .unwrap_err();
    assert!(matches!(error, EnqueueError::NoDatabase), "{error}");
    session.commit_transaction().await.unwrap();
    let letters = client.database(&name).collection::<Document>("letters");
    assert_eq!(letters.count_documents(doc! {}).await.unwrap(), 1);
}

#[tokio::test]
async fn a_document_that_discovery_cannot_find_is_refused_at_the_insert() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let whole = || pillarbox::enqueue::mongodb_document(&event());
    harness.events().insert_one(whole()).await.unwrap();
    for (name, value) in [
        ("seq", mongodb::bson::Bson::Int64(1)),
        ("lane", 256.into()),
        ("lane", "7".into()),
        ("status", "new".into()),
        ("event_id", 7.into()),
        ("topic", mongodb::bson::Bson::Null),
    ] {
        let mut document = whole();
        document.insert(name, value.clone());
        assert!(
            harness.events().insert_one(document).await.is_err(),
            "{name}: {value}"
        );
        let mut document = whole();
        document.remove(name);
        assert!(
            harness.events().insert_one(document).await.is_err(),
            "without {name}"
        );
    }
    let same = whole();
    harness.events().insert_one(same.clone()).await.unwrap();
    assert!(
        harness.events().insert_one(same).await.is_err(),
        "an event_id must be unique"
    );
}

#[tokio::test]
async fn the_outbox_has_the_indexes_that_services_know_and_those_of_the_relay() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let names = harness.events().list_index_names().await.unwrap();
    for name in [
        "status_created_at",
        "status_published_at",
        "locked_until",
        "event_id",
        "entity_id_version",
        "pending",
        "seq",
    ] {
        assert!(
            names.iter().any(|there| there == name),
            "{name} is not among {names:?}"
        );
    }
    let script = harness.store.admin.migration_sql();
    for word in [
        "createCollection(\"outbox_events\")",
        "\"pending\"",
        "$jsonSchema",
        "schema_version",
        "outbox_events_lanes",
    ] {
        assert!(script.contains(word), "{word}: {script}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_reported() {
    let mut options = DatabaseOptions::new("mongodb://app:geheim@127.0.0.1:1/shop");
    options.connect_timeout = Duration::from_millis(300);
    let store = connect::store(&options).unwrap();
    let error = store.store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Away, "{}", error.chain());
    assert!(!error.chain().contains("geheim"), "{}", error.chain());
}

#[tokio::test]
async fn an_event_of_another_languages_service_is_read() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let mut document = pillarbox::enqueue::mongodb_document(&event());
    document.insert("payload", doc! { "user": { "name": "Ada" } });
    document.insert("headers", doc! { "a.b": "dotted", "$c": "dollar" });
    document.insert(
        "seq",
        Timestamp {
            time: 0,
            increment: 0,
        },
    );
    harness.events().insert_one(document).await.unwrap();
    let store: &dyn Store = &*harness.store.store;
    let held = store
        .take_lanes(uuid::Uuid::now_v7(), 256, Duration::from_secs(60))
        .await
        .unwrap();
    let page = store
        .reader(&held)
        .next(pillarbox_testkit::contract::store::scene::page(10))
        .await
        .unwrap();
    assert_eq!(&page.events[0].event.payload[..], br#"{"user":{"name":"Ada"}}"#);
    assert_eq!(page.events[0].event.headers["a.b"], "dotted");
    assert_eq!(page.events[0].event.headers["$c"], "dollar");
}

fn event() -> Event {
    Event::to("t.x")
        .event_type("X")
        .aggregate("thing", "1")
        .payload("{}")
}

#[tokio::test]
async fn an_outbox_of_version_6_gets_its_event_log() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let collection = |name: &str| harness.database().collection::<Document>(name);
    let log = collection("outbox_events_log");
    let (store, admin) = (&harness.store.store, &harness.store.admin);
    log.drop().await.unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated);
    assert!(error.to_string().contains("outbox_events_log"), "{error}");
    collection("outbox_events_meta")
        .update_one(doc! { "_id": "schema_version" }, doc! { "$set": { "value": 6 } })
        .await
        .unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotMigrated);
    assert!(error.to_string().contains("run `pillarbox migrate`"), "{error}");
    let done = admin.migrate().await.unwrap();
    assert!(done[0].contains("was at version 6"), "{done:?}");
    store.check().await.unwrap();
    let names = log.list_index_names().await.unwrap();
    for name in [
        "published",
        "died",
        "entity_id",
        "project_id",
        "user_id",
        "correlation_id",
    ] {
        assert!(names.iter().any(|there| there == name), "{name}: {names:?}");
        let line = format!("\"name\":\"{name}\"");
        assert!(admin.migration_sql().contains(&line), "{name}");
    }
}

#[tokio::test]
async fn an_outbox_of_version_3_is_brought_up_to_date() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let harness = MongoHarness::new(server).await;
    let collection = |name: &str| harness.database().collection::<Document>(name);
    for new in ["outbox_events_pressure", "outbox_events_keys"] {
        collection(new).drop().await.unwrap();
    }
    collection("outbox_events_notices")
        .insert_one(doc! { "_id": "old" })
        .await
        .unwrap();
    let version = doc! { "$set": { "value": 3 } };
    let meta = collection("outbox_events_meta");
    meta.update_one(doc! { "_id": "schema_version" }, version)
        .await
        .unwrap();
    let (store, admin) = (&harness.store.store, &harness.store.admin);
    assert_eq!(store.check().await.unwrap_err().kind, StoreErrorKind::NotMigrated);
    let done = admin.migrate().await.unwrap();
    assert!(done[0].contains("was at version 3"), "{done:?}");
    store.check().await.unwrap();
    let names = harness.database().list_collection_names().await.unwrap();
    assert!(names.contains(&"outbox_events_keys".to_owned()), "{names:?}");
    assert!(!names.contains(&"outbox_events_notices".to_owned()), "{names:?}");
    assert!(admin.migrate().await.unwrap()[0].contains("up to date"));
}
