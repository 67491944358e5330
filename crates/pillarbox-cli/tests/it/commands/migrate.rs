//! `migrate` with a role that owns only its own schema.

use sqlx::{AssertSqlSafe, PgPool};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_without_the_right_to_the_functions_schema_migrates_and_relays_without_it() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let database = postgres.database().await;
    let owner = PgPool::connect(&database).await.unwrap();
    let name = format!("app_{}", uuid::Uuid::now_v7().simple());
    let sql = async |sql: &str| {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&owner)
            .await
            .unwrap()
    };
    sql(&format!(
        "create role {name} login; create schema app authorization {name}; alter role {name} set search_path = app"
    ))
    .await;
    let url = database.replace("postgres@", &format!("{name}@"));
    let folder = tempfile::tempdir().unwrap();
    let config =
        format!("outbox:\n  database: {{ url: \"{url}\" }}\n  sinks: {{ out: {{ url: \"stdout:\" }} }}\n");
    std::fs::write(folder.path().join("pillarbox.yaml"), config).unwrap();

    let made = run(folder.path(), &["migrate"]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let ask = format!("create schema pillarbox authorization {name}");
    let said = stderr(&made);
    assert!(
        said.contains("warning: the function pillarbox.enqueue") && said.contains(&ask),
        "{said}"
    );
    assert!(
        stdout(&made).contains("created table outbox_events"),
        "{}",
        stdout(&made)
    );

    let written = run_with_input(folder.path(), &["enqueue", "--ndjson"], &line(1));
    assert_eq!(code(&written), 0, "{}", stderr(&written));
    let relay = Running::start(folder.path(), &["run", "--no-http"]);
    until_none(folder.path(), "pending");
    let (ended, out) = relay.stop();
    assert_eq!(ended, 0);
    assert!(out.contains("018f0000-0000-7000-8000-000000000001"), "{out}");

    let again = json(&run(folder.path(), &["migrate", "--json"]));
    assert!(again["missing"][0].as_str().unwrap().contains(&ask), "{again}");
    sql(&ask).await;
    let made = json(&run(folder.path(), &["migrate", "--json"]));
    assert_eq!(made["done"][0], "created function pillarbox.enqueue", "{made}");
    assert_eq!(made["missing"], serde_json::json!([]));
}
