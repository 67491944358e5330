//! The supported transactions of applications: sqlx, tokio-postgres, and diesel through diesel-async.

use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use jiff::Timestamp;
use pillarbox::{EnqueueError, Enqueued, Event, Outbox, RetryOverrides, Transaction, table::Tables};
use pillarbox_testkit::servers;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::{Place, drain, event, ids, page, place, written};

async fn tokio_client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn diesel_connection(url: &str) -> AsyncPgConnection {
    AsyncPgConnection::establish(url).await.unwrap()
}

/// One event with every field, and one with only the required fields.
fn odd_events() -> Vec<Event> {
    let tomorrow = Timestamp::now().as_second() + 86_400;
    let due = Timestamp::from_microsecond(tomorrow * 1_000_000 + 123_456).unwrap();
    let full = Event::to("shop.order.placed")
        .event_type("OrderPlaced")
        .aggregate("order", "o-ü")
        .payload(r#"{"b": 1.50, "a":[ ], "text": "\u00fc ü"}"#)
        .partition_key("customer-7")
        .aggregate_version(3)
        .schema_version(2)
        .stream("SHOP")
        .header("traceparent", "00-x")
        .header("quote", r#"a"b\c"#)
        .project_id("p")
        .user_id("u")
        .available_at(due)
        .retry(
            RetryOverrides::default()
                .max_attempts(7)
                .base_delay_ms(10)
                .max_delay_ms(1_000)
                .backoff_multiplier(1.5),
        );
    vec![full, Event::to("t").event_type("X").aggregate("a", "1")]
}

/// The whole rows, without the columns that always differ.
async fn rows(place: &Place) -> Vec<String> {
    sqlx::query_scalar(
        "select (to_jsonb(e) - 'seq' - 'txid' - 'created_at' - 'id')::text || payload from outbox_events e order by seq",
    )
    .fetch_all(&place.pool)
    .await
    .unwrap()
}

async fn forget(place: &Place) {
    place.run("truncate outbox_events").await;
}

/// Writes two events together and one alone, because a single event has its own statement.
async fn write_odd(tx: &mut impl Transaction, events: &[Event]) {
    let outbox = Outbox::default();
    outbox.enqueue_all(tx, events).await.unwrap();
    for event in events {
        let mut alone = event.clone();
        alone.id = Uuid::now_v7().into();
        assert_eq!(outbox.enqueue(tx, &alone).await.unwrap(), Enqueued::New);
    }
}

#[tokio::test]
async fn every_adapter_writes_the_same_rows() {
    let Some(place) = place().await else { return };
    let events = odd_events();
    let mut tx = place.pool.begin().await.unwrap();
    write_odd(&mut tx, &events).await;
    tx.commit().await.unwrap();
    let expected = rows(&place).await;
    assert_eq!(expected.len(), 4);
    assert_eq!(expected[..2], expected[2..]);

    forget(&place).await;
    let mut client = tokio_client(&place.url).await;
    let mut tx = client.transaction().await.unwrap();
    write_odd(&mut tx, &events).await;
    tx.commit().await.unwrap();
    assert_eq!(rows(&place).await, expected);

    forget(&place).await;
    let mut connection = diesel_connection(&place.url).await;
    connection
        .transaction(async |connection| {
            write_odd(connection, &events).await;
            Ok::<_, diesel::result::Error>(())
        })
        .await
        .unwrap();
    assert_eq!(rows(&place).await, expected);
}

/// Checks what every adapter promises in an open transaction. Returns the events to be committed.
async fn promises(tx: &mut impl Transaction) -> Vec<Event> {
    let outbox = Outbox::default();
    let bad = [event("a"), event("a").payload("{")];
    let refused = outbox.enqueue_all(tx, &bad).await;
    assert!(
        matches!(refused, Err(EnqueueError::Refused { index: 1, .. })),
        "{refused:?}"
    );
    // More events than fit into one statement.
    let mut events: Vec<Event> = (0..1_203).map(|n| event(&format!("k{}", n % 7))).collect();
    events.push(events[0].clone());
    let enqueued = outbox.enqueue_all(tx, &events).await.unwrap();
    let last = events.pop().unwrap();
    assert!(enqueued[..1_203].iter().all(|e| *e == Enqueued::New));
    assert_eq!(enqueued[1_203], Enqueued::Duplicate);
    assert_eq!(outbox.enqueue(tx, &last).await.unwrap(), Enqueued::Duplicate);
    assert_eq!(outbox.pressure(tx, "t").await.unwrap(), None);
    assert!(outbox.enqueue_all(tx, &[]).await.unwrap().is_empty());
    events
}

/// Checks that the table holds the committed events, in order.
async fn holds(place: &Place, events: &[Event]) {
    let stored = drain(&mut place.reader(), page(5_000)).await;
    assert_eq!(ids(&stored), written(events));
}

#[tokio::test]
async fn a_transaction_of_tokio_postgres_carries_events_or_loses_them() {
    let Some(place) = place().await else { return };
    let mut client = tokio_client(&place.url).await;
    let mut tx = client.transaction().await.unwrap();
    let events = promises(&mut tx).await;
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    Outbox::default().enqueue(&mut tx, &event("lost")).await.unwrap();
    tx.rollback().await.unwrap();
    holds(&place, &events).await;
}

#[tokio::test]
async fn a_transaction_of_diesel_carries_events_or_loses_them() {
    let Some(place) = place().await else { return };
    let mut connection = diesel_connection(&place.url).await;
    let events = connection
        .transaction(async |connection| Ok::<_, diesel::result::Error>(promises(connection).await))
        .await
        .unwrap();
    let lost = connection
        .transaction(async |connection| {
            Outbox::default()
                .enqueue(connection, &event("lost"))
                .await
                .unwrap();
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        })
        .await;
    assert!(lost.is_err());
    holds(&place, &events).await;
}

#[tokio::test]
async fn diesel_outside_a_transaction_is_refused() {
    let Some(place) = place().await else { return };
    let mut connection = diesel_connection(&place.url).await;
    let refused = Outbox::default().enqueue(&mut connection, &event("a")).await;
    assert!(matches!(refused, Err(EnqueueError::NoTransaction)), "{refused:?}");
    diesel::sql_query("select 1")
        .execute(&mut connection)
        .await
        .unwrap();
}

#[tokio::test]
async fn every_adapter_says_that_there_is_no_outbox() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let url = server.database().await;
    for table in ["outbox_events", "nowhere.outbox_events"] {
        let outbox = Outbox::new(Tables::new(table, None).unwrap(), Default::default());
        let pool = sqlx::PgPool::connect(&url).await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        not_migrated(outbox.enqueue(&mut tx, &event("a")).await);
        let mut client = tokio_client(&url).await;
        let mut tx = client.transaction().await.unwrap();
        not_migrated(outbox.enqueue(&mut tx, &event("a")).await);
        let mut connection = diesel_connection(&url).await;
        let _ = connection
            .transaction(async |connection| {
                not_migrated(outbox.enqueue(connection, &event("a")).await);
                Err::<(), _>(diesel::result::Error::RollbackTransaction)
            })
            .await;
    }
}

fn not_migrated(refused: Result<Enqueued, EnqueueError>) {
    let error = refused.unwrap_err();
    assert!(matches!(error, EnqueueError::NotMigrated { .. }), "{error:?}");
    assert!(error.to_string().contains("pillarbox migrate"), "{error}");
}

/// The version already exists, and the adapter recognises how its library reports that.
#[tokio::test]
async fn every_adapter_refuses_the_second_event_with_a_version() {
    use pillarbox_relay::check::versions::{AggregateVersions, VersionIndex};
    let Some(place) = place().await else { return };
    assert_eq!(
        place.store.make_index(VersionIndex::Unique).await.unwrap().len(),
        1
    );
    assert!(
        place
            .store
            .make_index(VersionIndex::Unique)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        place.store.has_index().await.unwrap(),
        "the index also serves the check of versions"
    );
    let outbox = Outbox::default();
    let taken = event("o-1").aggregate_version(3);
    let mut tx = place.pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, &taken).await.unwrap();
    // An event without a version, and the same event again, are accepted.
    outbox.enqueue(&mut tx, &event("o-1")).await.unwrap();
    outbox.enqueue(&mut tx, &event("o-1")).await.unwrap();
    assert_eq!(
        outbox.enqueue(&mut tx, &taken).await.unwrap(),
        Enqueued::Duplicate
    );
    tx.commit().await.unwrap();

    let second = [
        event("o-2").aggregate_version(1),
        event("o-1").aggregate_version(3),
    ];
    let mut tx = place.pool.begin().await.unwrap();
    version_taken(outbox.enqueue_all(&mut tx, &second).await);
    drop(tx);
    let mut tx = place.pool.begin().await.unwrap();
    version_taken(outbox.enqueue_all(&mut tx, &second[1..]).await);
    drop(tx);
    let mut client = tokio_client(&place.url).await;
    let mut tx = client.transaction().await.unwrap();
    version_taken(outbox.enqueue_all(&mut tx, &second).await);
    drop(tx);
    let mut connection = diesel_connection(&place.url).await;
    let _ = connection
        .transaction(async |connection| {
            version_taken(outbox.enqueue_all(connection, &second).await);
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        })
        .await;
}

fn version_taken(refused: Result<Vec<Enqueued>, EnqueueError>) {
    match refused {
        Err(EnqueueError::VersionTaken {
            aggregate_type,
            aggregate_id,
            version,
            source,
        }) => {
            assert_eq!((&*aggregate_type, &*aggregate_id, version), ("order", "o-1", 3));
            assert!(!source.to_string().is_empty());
        }
        other => panic!("{other:?}"),
    }
}
