//! The indexes on the versions of aggregates. The contract tests the results of the queries.

use pillarbox::table::Tables;
use pillarbox_relay::{
    check::versions::VersionIndex,
    connect::{self, DatabaseOptions},
    store::postgres::PLANS,
};
use pillarbox_testkit::servers;
use sqlx::{Connection, PgConnection, Row, SqliteConnection};

async fn open(url: &str) {
    let open = connect::store(&DatabaseOptions::new(url)).unwrap();
    open.admin.migrate().await.unwrap();
    let versions = open.require_versions().unwrap();
    assert!(!versions.has_index().await.unwrap());
    assert_eq!(versions.make_index(VersionIndex::Plain).await.unwrap().len(), 1);
}

#[tokio::test]
async fn versions_in_sqlite_go_by_their_index() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("x.db").display());
    open(&url).await;
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

/// Every outbox in MongoDB has this index. `mongodb::plans` checks that the queries use it.
#[tokio::test]
async fn versions_in_mongodb() {
    let Some(mongo) = servers::mongo().await else {
        return;
    };
    let url = mongo.database();
    let open = connect::store(&DatabaseOptions::new(&url)).unwrap();
    open.admin.migrate().await.unwrap();
    let versions = open.require_versions().unwrap();
    assert!(versions.has_index().await.unwrap());
    assert!(versions.make_index(VersionIndex::Plain).await.unwrap().is_empty());
    let client = mongodb::Client::with_uri_str(&url).await.unwrap();
    let events = client.default_database().unwrap();
    let events = events.collection::<mongodb::bson::Document>("outbox_events");
    events.drop_index("entity_id_version").await.unwrap();
    assert!(!versions.has_index().await.unwrap());
    assert_eq!(versions.make_index(VersionIndex::Plain).await.unwrap().len(), 1);
    assert!(versions.has_index().await.unwrap());
    assert!(
        versions
            .index_sql(VersionIndex::Plain)
            .contains("entity_id_version")
    );
}

#[tokio::test]
async fn versions_in_postgres_go_by_their_index() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let url = postgres.database().await;
    open(&url).await;
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
