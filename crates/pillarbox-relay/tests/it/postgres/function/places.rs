//! Where the function is created, which table it finds, and who may call it.

use pillarbox::table::Tables;
use pillarbox_relay::{
    Store,
    connect::DatabaseOptions,
    store::{Admin, postgres::PostgresStore},
};
use pillarbox_testkit::servers;
use sqlx::{AssertSqlSafe, PgPool, postgres::PgConnectOptions};
use uuid::Uuid;

use super::{
    super::{Place, place},
    id, refusal,
};

#[tokio::test]
async fn each_outbox_of_a_database_has_a_function_of_its_own() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let url = server.database().await;
    let pool = PgPool::connect(&url).await.unwrap();
    sqlx::raw_sql("create schema shop; create schema a_b; create schema a")
        .execute(&pool)
        .await
        .unwrap();
    let names = ["outbox_events", "shop.outbox", "other", "a_b.c", "a.b_c"];
    // All at once, as services that are deployed together do.
    let made = names.map(|name| {
        let mut options = DatabaseOptions::new(&url);
        options.tables = Tables::new(name, None).unwrap();
        tokio::spawn(async move {
            let store = PostgresStore::open(&options).unwrap();
            let done = store.migrate().await.unwrap();
            (store, done)
        })
    });
    let functions = [
        "pillarbox.enqueue",
        "shop.outbox_enqueue",
        "other_enqueue",
        "a_b.c_enqueue",
        "a.b_c_enqueue",
    ];
    for (made, function) in made.into_iter().zip(functions) {
        let (store, done) = made.await.unwrap();
        assert!(done.contains(&format!("created function {function}")), "{done:?}");
        let call = format!("{function}('t', '{function}', 'T', '{{}}', lock_key => true)");
        id(&pool, &call).await.unwrap();
        let there = store.recent(10).await.unwrap();
        assert_eq!(there.len(), 1);
        assert_eq!(there[0].event.event.key(), function);
    }
}

/// Two tenants with different search paths.
#[tokio::test]
async fn the_callers_search_path_finds_the_table() {
    let Some(server) = servers::postgres().await else {
        return;
    };
    let url = server.database().await;
    let pool = PgPool::connect(&url).await.unwrap();
    sqlx::raw_sql("create schema one; create schema two")
        .execute(&pool)
        .await
        .unwrap();
    for tenant in ["one", "two"] {
        let url = format!("{url}?options=-csearch_path%3D{tenant}");
        PostgresStore::open(&DatabaseOptions::new(url))
            .unwrap()
            .migrate()
            .await
            .unwrap();
    }
    let mut connection = pool.acquire().await.unwrap();
    for (tenant, times) in [("one", 1), ("two", 2), ("one", 1)] {
        sqlx::raw_sql(AssertSqlSafe(format!("set search_path = {tenant}")))
            .execute(&mut *connection)
            .await
            .unwrap();
        for _ in 0..times {
            sqlx::query("select pillarbox.enqueue('t', 'k', 'T', '{}')")
                .execute(&mut *connection)
                .await
                .unwrap();
        }
    }
    for tenant in ["one", "two"] {
        let count = format!("select count(*) from {tenant}.outbox_events");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(count, 2, "{tenant}");
    }
}

/// A place, and a pool with a role that has no rights yet.
async fn place_and_stranger() -> Option<(Place, PgPool)> {
    let place = place().await?;
    let name = format!("app_{}", Uuid::now_v7().simple());
    place.run(&format!("create role {name} login")).await;
    let options: PgConnectOptions = place.url.parse().unwrap();
    let pool = PgPool::connect_with(options.username(&name)).await.unwrap();
    Some((place, pool))
}

#[tokio::test]
async fn an_application_needs_the_rights_that_are_documented_and_no_more() {
    let Some((place, stranger)) = place_and_stranger().await else {
        return;
    };
    let call = "pillarbox.enqueue('t', 'k', 'T', '{}')";
    let rights = [
        "usage on schema pillarbox",
        "insert, select on outbox_events",
        "select on outbox_events_pressure, outbox_events_seq",
        "select on outbox_events_asleep",
    ];
    let name: String = sqlx::query_scalar("select current_user::text")
        .fetch_one(&stranger)
        .await
        .unwrap();
    for right in rights {
        assert_eq!(refusal(&stranger, call).await.0, "42501", "without {right}");
        place.run(&format!("grant {right} to {name}")).await;
    }
    id(&stranger, call).await.unwrap();
}

/// A role that owns only its own schema, and a place that belongs to another role.
async fn place_and_tenant() -> Option<(Place, String, String)> {
    let (place, stranger) = place_and_stranger().await?;
    let name: String = sqlx::query_scalar("select current_user::text")
        .fetch_one(&stranger)
        .await
        .unwrap();
    place
        .run(&format!(
            "create schema app authorization {name}; alter role {name} set search_path = app"
        ))
        .await;
    let url = place.url.replace("postgres@", &format!("{name}@"));
    Some((place, name, url))
}

#[tokio::test]
async fn without_the_right_to_create_the_function_the_tables_are_created() {
    let Some((place, name, url)) = place_and_tenant().await else {
        return;
    };
    let store = PostgresStore::open(&DatabaseOptions::new(&url)).unwrap();
    // Another role owns the function, and the function also serves this outbox.
    place
        .run(&format!("grant create, usage on schema pillarbox to {name}"))
        .await;
    let done = store.migrate().await.unwrap();
    let left = "left the function pillarbox.enqueue as it is: it belongs to postgres";
    assert!(done.iter().any(|line| line.starts_with(left)), "{done:?}");
    assert_eq!(store.missing().await.unwrap(), [""; 0]);
    store.check().await.unwrap();
    // First the schema belongs to another role, then there is none. Both times nothing changes, and the
    // warning names the missing right again.
    let grant = format!("grant create, usage on schema pillarbox to {name}");
    let create = format!("create schema pillarbox authorization {name}");
    let without = "drop schema pillarbox cascade";
    let foreign = format!("{without}; create schema pillarbox");
    for (before, advice) in [(&*foreign, grant), (without, create.clone())] {
        place.run(before).await;
        let done = store.migrate().await.unwrap();
        assert_eq!(done, ["nothing to do: version 8 is there"]);
        let missing = store.missing().await.unwrap();
        assert!(missing[0].contains(&advice), "{missing:?}");
    }
    place.run(&create).await;
    assert_eq!(
        store.migrate().await.unwrap(),
        ["created function pillarbox.enqueue"]
    );
    assert_eq!(store.missing().await.unwrap(), [""; 0]);
    let pool = PgPool::connect(&url).await.unwrap();
    id(&pool, "pillarbox.enqueue('t', 'k', 'T', '{}')").await.unwrap();
}

#[tokio::test]
async fn the_printed_migration_does_without_the_function_too() {
    let Some((place, name, url)) = place_and_tenant().await else {
        return;
    };
    place.run("drop schema pillarbox cascade").await;
    let store = PostgresStore::open(&DatabaseOptions::new(&url)).unwrap();
    let pool = PgPool::connect(&url).await.unwrap();
    let printed = || sqlx::raw_sql(AssertSqlSafe(store.migration_sql())).execute(&pool);
    printed().await.unwrap();
    store.check().await.unwrap();
    assert_eq!(store.missing().await.unwrap().len(), 1);
    place
        .run(&format!("create schema pillarbox authorization {name}"))
        .await;
    printed().await.unwrap();
    id(&pool, "pillarbox.enqueue('t', 'k', 'T', '{}')").await.unwrap();
}
