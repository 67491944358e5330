//! The order of writes on SQLite and MongoDB: versions that already exist, and several writers of one key.

use mongodb::{Client, error::TRANSIENT_TRANSACTION_ERROR};
use pillarbox::{EnqueueError, Event, Outbox};
use pillarbox_relay::{
    check::versions::VersionIndex,
    connect::{self, DatabaseOptions, OpenStore},
};
use pillarbox_testkit::servers;

async fn open(url: &str) -> OpenStore {
    let open = connect::store(&DatabaseOptions::new(url)).unwrap();
    open.admin.migrate().await.unwrap();
    open
}

fn event(key: &str) -> Event {
    Event::to("t.x").event_type("X").aggregate("order", key)
}

fn version_taken(refused: Result<impl std::fmt::Debug, EnqueueError>) {
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

/// Creates the unique index. The check of versions uses it too.
async fn make_unique(open: &OpenStore) {
    assert_eq!(
        open.require_versions()
            .unwrap()
            .make_index(VersionIndex::Unique)
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(
        open.require_versions()
            .unwrap()
            .make_index(VersionIndex::Unique)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(open.require_versions().unwrap().has_index().await.unwrap());
    assert!(
        open.require_versions()
            .unwrap()
            .index_sql(VersionIndex::Unique)
            .contains("unique")
    );
}

/// Two events; the second is refused.
fn second() -> [Event; 2] {
    [
        event("o-2").aggregate_version(3),
        event("o-1").aggregate_version(3),
    ]
}

#[tokio::test]
async fn sqlite_refuses_the_second_event_with_a_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outbox.db");
    let url = format!("sqlite:{}", path.display());
    make_unique(&open(&url).await).await;
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let outbox = Outbox::default().serialise_keys();
    let mut tx = pool.begin_with("begin immediate").await.unwrap();
    let first = event("o-1").aggregate_version(3);
    outbox.enqueue(&mut tx, &first).await.unwrap();
    outbox
        .enqueue_all(&mut tx, &[first, event("o-1"), event("o-1")])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = pool.begin_with("begin immediate").await.unwrap();
    version_taken(outbox.enqueue_all(&mut tx, &second()).await);
}

#[tokio::test]
async fn mongodb_refuses_the_second_event_with_a_version() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let url = server.database();
    make_unique(&open(&url).await).await;
    let client = Client::with_uri_str(&url).await.unwrap();
    let outbox = Outbox::default();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let first = event("o-1").aggregate_version(3);
    outbox
        .enqueue_all(&mut session, &[first, event("o-1"), event("o-1")])
        .await
        .unwrap();
    session.commit_transaction().await.unwrap();
    for events in [&second()[..], &second()[1..]] {
        session.start_transaction().await.unwrap();
        version_taken(outbox.enqueue_all(&mut session, events).await);
        let _ = session.abort_transaction().await;
    }
}

/// Writes an event of each key in its own transaction, the second while the first is open. Returns whether
/// the second one must be retried.
async fn second_is_told(client: &Client, outbox: &Outbox, keys: (&str, &str)) -> bool {
    let mut first = client.start_session().await.unwrap();
    first.start_transaction().await.unwrap();
    outbox.enqueue(&mut first, &event(keys.0)).await.unwrap();
    let mut second = client.start_session().await.unwrap();
    second.start_transaction().await.unwrap();
    let told = match outbox.enqueue(&mut second, &event(keys.1)).await {
        Ok(_) => false,
        Err(EnqueueError::Database(error)) => {
            let error = error.downcast_ref::<mongodb::error::Error>().unwrap();
            assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}");
            true
        }
        Err(error) => panic!("{error}"),
    };
    first.commit_transaction().await.unwrap();
    let _ = second.abort_transaction().await;
    if told {
        // The retry succeeds and gets a later seq.
        second.start_transaction().await.unwrap();
        outbox.enqueue(&mut second, &event(keys.1)).await.unwrap();
        second.commit_transaction().await.unwrap();
    }
    told
}

#[tokio::test]
async fn mongodb_serialises_writers_of_one_key_where_that_is_asked_for() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    let url = server.database();
    open(&url).await;
    let client = Client::with_uri_str(&url).await.unwrap();
    let plain = Outbox::default();
    let serialised = plain.clone().serialise_keys();
    assert!(
        !second_is_told(&client, &plain, ("a", "a")).await,
        "without `serialise_keys` the second writer is not refused"
    );
    for _ in 0..5 {
        assert!(second_is_told(&client, &serialised, ("a", "a")).await);
        assert!(!second_is_told(&client, &serialised, ("a", "b")).await);
    }
}
