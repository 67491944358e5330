//! What the stores know of the versions of aggregates: the same in each.

use std::{sync::Arc, time::Duration};

use pillarbox::{Event, Limits, table::Tables};
use pillarbox_relay::{
    Settlement, Store,
    check::versions::{AggregateVersions, LetThrough},
    connect::{self, DatabaseOptions},
    route::AfterDeath,
    settlement::{Dead, DeadReason, Failed, FailedTry, Parked},
    store::{Admin, PageLimit, postgres::PLANS},
};
use pillarbox_testkit::memory::MemoryStore;
use pillarbox_testkit::servers;
use sqlx::{Connection, PgConnection, Row, SqliteConnection};
use uuid::Uuid;

const TTL: Duration = Duration::from_secs(60);

struct Place {
    store: Arc<dyn Store>,
    admin: Arc<dyn Admin>,
    versions: Arc<dyn AggregateVersions>,
}

async fn open(url: &str) -> Place {
    let open = connect::store(&DatabaseOptions::new(url)).unwrap();
    open.admin.migrate().await.unwrap();
    assert!(!open.versions.has_index().await.unwrap());
    assert_eq!(open.versions.make_index().await.unwrap().len(), 1);
    assert!(open.versions.make_index().await.unwrap().is_empty());
    assert!(open.versions.has_index().await.unwrap());
    Place {
        store: open.store,
        admin: open.admin,
        versions: open.versions,
    }
}

fn failure() -> FailedTry {
    FailedTry {
        error: "x".into(),
        sink: None,
        relay: "relay".into(),
    }
}

/// Versions 1 to 6 of one aggregate: two published, one failed, one dead, two pending.
async fn what_was_let_through_counts_and_nothing_else(place: Place) {
    let event = |id: &str, version: i64| {
        Event::to("t")
            .event_type("X")
            .aggregate("order", id)
            .aggregate_version(version)
    };
    let mut events: Vec<Event> = (1..=6).map(|n| event("a", n)).collect();
    events.push(Event::to("t").event_type("X").aggregate("order", "b"));
    events.push(event("c", 9));
    place.admin.enqueue(&Limits::default(), &events).await.unwrap();
    let relay = Uuid::now_v7();
    place.store.heartbeat(relay, "relay", TTL, &[]).await.unwrap();
    let held = place.store.take_lanes(relay, 256, TTL).await.unwrap();
    let limit = PageLimit {
        events: 100,
        bytes: 1 << 20,
        payload_bytes_max: 1 << 20,
    };
    let page = place.store.reader(&held).next(limit).await.unwrap();
    let seqs: Vec<i64> = page.events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs.len(), 8);
    assert!(
        place.admin.low_mark().await.unwrap() < seqs[0],
        "nothing is settled yet"
    );
    let lane = page.events[0].lane;
    let settlement = Settlement {
        published: vec![seqs[0], seqs[1], seqs[6]],
        failed: vec![Failed {
            parked: Parked {
                seq: seqs[2],
                lane,
                key: "a".into(),
            },
            attempts: 1,
            failure: failure(),
            retry_in: TTL,
        }],
        dead: vec![Dead {
            seq: seqs[3],
            lane,
            key: None,
            after: AfterDeath::Skip,
            attempts: 1,
            reason: DeadReason::PermanentFailure,
            failure: failure(),
            tried: true,
        }],
        ..Settlement::default()
    };
    place.store.settle(&held, &settlement).await.unwrap();
    let aggregate = |id: &str| ("order".to_owned(), id.to_owned());
    let asked = [
        aggregate("b"),
        aggregate("a"),
        aggregate("c"),
        aggregate("gone"),
        ("user".into(), "a".into()),
    ];
    let latest = place.versions.latest(&asked).await.unwrap();
    let third = LetThrough {
        version: 3,
        seq: seqs[2],
    };
    assert_eq!(latest, [None, Some(third), None, None, None]);
    assert_eq!(place.versions.dead_among(&seqs).await.unwrap(), [seqs[3]]);
    assert!(place.versions.latest(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn versions_in_memory() {
    let store = Arc::new(MemoryStore::default());
    let place = Place {
        store: store.clone(),
        admin: store.clone(),
        versions: store,
    };
    what_was_let_through_counts_and_nothing_else(place).await;
}

#[tokio::test]
async fn versions_in_sqlite_go_by_their_index() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("x.db").display());
    what_was_let_through_counts_and_nothing_else(open(&url).await).await;
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let sql = Tables::default().render(include_str!("../../src/store/sqlite/sql/versions/latest.sql"));
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!("explain query plan {sql}")))
        .bind("[]")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let plan: String = rows.iter().map(|row| row.get::<String, _>(3) + "\n").collect();
    assert!(
        plan.contains("outbox_events_versions (aggregate_type=? AND aggregate_id=?"),
        "{plan}"
    );
}

/// Its index is one of those that every outbox in MongoDB has. That they go by it is seen in `mongodb::plans`.
#[tokio::test]
async fn versions_in_mongodb() {
    let Some(mongo) = servers::mongo().await else {
        return;
    };
    let url = mongo.database();
    let open = connect::store(&DatabaseOptions::new(&url)).unwrap();
    open.admin.migrate().await.unwrap();
    let versions = open.versions.clone();
    assert!(versions.has_index().await.unwrap());
    assert!(versions.make_index().await.unwrap().is_empty());
    let place = Place {
        store: open.store,
        admin: open.admin,
        versions: open.versions,
    };
    what_was_let_through_counts_and_nothing_else(place).await;
    let client = mongodb::Client::with_uri_str(&url).await.unwrap();
    let events = client.default_database().unwrap();
    let events = events.collection::<mongodb::bson::Document>("outbox_events");
    events.drop_index("entity_id_version").await.unwrap();
    assert!(!versions.has_index().await.unwrap());
    assert_eq!(versions.make_index().await.unwrap().len(), 1);
    assert!(versions.has_index().await.unwrap());
    assert!(versions.index_sql().contains("entity_id_version"));
}

#[tokio::test]
async fn versions_in_postgres_go_by_their_index() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let url = postgres.database().await;
    what_was_let_through_counts_and_nothing_else(open(&url).await).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(PLANS).execute(&mut connection).await.unwrap();
    let sql = Tables::default().render(include_str!("../../src/store/postgres/sql/versions/latest.sql"));
    let sql = format!("prepare p as {sql}; explain execute p('{{order}}', '{{a}}')");
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let plan: String = rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect();
    assert!(
        plan.contains("Index Scan Backward using outbox_events_versions"),
        "{plan}"
    );
}
