//! `pillarbox.enqueue(…)`: writing events from any program that can run SQL.

mod places;

use pillarbox::EventId;
use pillarbox_relay::{Store, store::Admin};
use pillarbox_testkit::wait;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row};

use super::{DEADLINE, drain, page, place};

async fn id(pool: &PgPool, call: &str) -> Result<EventId, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(format!("select {call}")))
        .fetch_one(pool)
        .await
}

/// The SQLSTATE and the message.
async fn refusal(pool: &PgPool, call: &str) -> (String, String) {
    let error = id(pool, call).await.unwrap_err();
    let error = error.as_database_error().unwrap();
    (error.code().unwrap().into_owned(), error.message().to_owned())
}

#[tokio::test]
async fn a_relay_reads_the_events_of_the_function_unchanged() {
    let Some(place) = place().await else { return };
    let whole = "pillarbox.enqueue('shop.order.placed', 'customer-7', 'OrderPlaced', '{\"b\": 1.50, \"a\":[ ]}',
        aggregate_type => 'order', aggregate_id => 'o-1', aggregate_version => 3, headers => '{\"n\": \"1\"}',
        id => '01890a5d-ac96-774b-bcce-b302099a8057', stream => 'SHOP', schema_version => 2, project_id => 'p',
        user_id => 'u', max_attempts => 4, base_delay_ms => 10, max_delay_ms => 20, backoff_multiplier => 1.5,
        correlation_id => 'c-1', traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01')";
    let given = id(&place.pool, whole).await.unwrap();
    let short = id(&place.pool, "pillarbox.enqueue('shop.x', 'k', 'X', 'null')")
        .await
        .unwrap();
    assert_eq!(short.as_uuid().unwrap().get_version_num(), 7);
    let read = drain(&mut place.reader(), page(10)).await;
    let first = &read[0].event;
    assert_eq!(
        (first.id.clone(), first.topic.as_str()),
        (given, "shop.order.placed")
    );
    assert_eq!(first.key(), "customer-7");
    assert_eq!(
        (first.aggregate_type.as_str(), first.aggregate_id.as_str()),
        ("order", "o-1")
    );
    assert_eq!((first.aggregate_version, first.schema_version), (Some(3), 2));
    assert_eq!(&first.payload[..], br#"{"b": 1.50, "a":[ ]}"#);
    assert_eq!(first.headers["n"], "1");
    assert_eq!(first.headers["correlation-id"], "c-1");
    assert!(first.headers["traceparent"].starts_with("00-4bf9"));
    assert_eq!(first.stream.as_deref(), Some("SHOP"));
    assert_eq!(
        (first.project_id.as_deref(), first.user_id.as_deref()),
        (Some("p"), Some("u"))
    );
    assert_eq!(
        (first.retry.max_attempts, first.retry.base_delay_ms),
        (Some(4), Some(10))
    );
    assert_eq!(
        (first.retry.max_delay_ms, first.retry.backoff_multiplier),
        (Some(20), Some(1.5))
    );
    let second = &read[1].event;
    assert_eq!(
        (second.id.clone(), second.partition_key.as_deref()),
        (short, None)
    );
    assert_eq!((second.aggregate_type.as_str(), second.key()), ("shop.x", "k"));
    assert!(second.headers.is_empty());
}

#[tokio::test]
async fn payloads_of_every_type_find_their_function() {
    let Some(place) = place().await else { return };
    for (payload, stored) in [
        (r#"'{"b":1, "a":2}'"#, r#"{"b":1, "a":2}"#),
        (r#"'{"b":1, "a":2}'::text"#, r#"{"b":1, "a":2}"#),
        (r#"'{"b":1, "a":2}'::varchar"#, r#"{"b":1, "a":2}"#),
        (r#"'{"b":1, "a":2}'::json"#, r#"{"b":1, "a":2}"#),
        (r#"'{"b":1, "a":2}'::jsonb"#, r#"{"a": 2, "b": 1}"#),
        ("jsonb_build_object('n', 1)", r#"{"n": 1}"#),
        ("json_build_object('n', 1)", r#"{"n" : 1}"#),
    ] {
        id(
            &place.pool,
            &format!("pillarbox.enqueue('t', 'k', 'T', {payload})"),
        )
        .await
        .unwrap();
        let latest = place.store.recent(1).await.unwrap().remove(0);
        assert_eq!(&latest.event.event.payload[..], stored.as_bytes(), "{payload}");
    }
    // Drivers that leave the types to the server prepare the statement like this.
    let mut connection = place.pool.acquire().await.unwrap();
    sqlx::raw_sql("prepare untyped as select pillarbox.enqueue($1, $2, $3, $4, headers => $5, id => $6)")
        .execute(&mut *connection)
        .await
        .unwrap();
    sqlx::raw_sql("execute untyped('t', 'k', 'T', '{\"n\":2}', '{\"a\":\"b\"}', '01890a5d-ac96-774b-bcce-b302099a8057')")
        .execute(&mut *connection)
        .await
        .unwrap();
    let latest = place.store.recent(1).await.unwrap().remove(0);
    assert_eq!(&latest.event.event.payload[..], b"{\"n\":2}");
}

#[tokio::test]
async fn an_event_of_a_transaction_that_was_rolled_back_is_never_seen() {
    let Some(place) = place().await else { return };
    let mut tx = place.pool.begin().await.unwrap();
    sqlx::query("select pillarbox.enqueue('t', 'gone', 'T', '{}')")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.rollback().await.unwrap();
    let mut tx = place.pool.begin().await.unwrap();
    sqlx::raw_sql("savepoint before").execute(&mut *tx).await.unwrap();
    sqlx::query("select pillarbox.enqueue('', 'bad', 'T', '{}')")
        .execute(&mut *tx)
        .await
        .unwrap_err();
    sqlx::raw_sql("rollback to before")
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query("select pillarbox.enqueue('t', 'kept', 'T', '{}')")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let read = drain(&mut place.reader(), page(10)).await;
    assert_eq!(read.iter().map(|e| e.event.key()).collect::<Vec<_>>(), ["kept"]);
}

#[tokio::test]
async fn a_second_call_with_the_same_id_writes_nothing() {
    let Some(place) = place().await else { return };
    let given = "01890a5d-ac96-774b-bcce-b302099a8057";
    for key in ["first", "second"] {
        let call = format!("pillarbox.enqueue('t', '{key}', 'T', '{{}}', id => '{given}')");
        assert_eq!(id(&place.pool, &call).await.unwrap().to_string(), given);
    }
    let read = drain(&mut place.reader(), page(10)).await;
    assert_eq!(read.iter().map(|e| e.event.key()).collect::<Vec<_>>(), ["first"]);
}

#[tokio::test]
async fn a_refusal_has_its_own_sqlstate_and_says_why() {
    let Some(place) = place().await else { return };
    for (call, message) in [
        ("pillarbox.enqueue(null, 'k', 'T', '{}')", "topic is empty"),
        ("pillarbox.enqueue('t', null, 'T', '{}')", "aggregate_id is empty"),
        (
            "pillarbox.enqueue('t', '', 'T', '{}', aggregate_id => 'a')",
            "partition_key is empty",
        ),
        (
            "pillarbox.enqueue('a b', 'k', 'T', '{}')",
            "topic contains ' ', which can't be stored or sent",
        ),
        (
            "pillarbox.enqueue('t', E'a\\nb', 'T', '{}')",
            "aggregate_id contains '\\n', which can't be stored or sent",
        ),
        (
            "pillarbox.enqueue('t', 'k', 'T', '{}', headers => '[]')",
            "headers are not an object",
        ),
        (
            "pillarbox.enqueue('t', 'k', 'T', '{}', headers => '{\"a\": null}')",
            "header `a` is not a text",
        ),
        (
            "pillarbox.enqueue('t', 'k', 'T', '{}', id => '00000000-0000-0000-0000-000000000000')",
            "the id is all zeros: give each event its own id, or none",
        ),
        (
            "pillarbox.enqueue('t', 'k', 'T', null)",
            "the payload is not JSON: it is SQL's null (JSON's is written 'null')",
        ),
        (
            "pillarbox.enqueue('t', 'k', 'T', '{}', available_at => 'infinity')",
            "the event is due in Infinity days; at most 365 are allowed",
        ),
    ] {
        assert_eq!(
            refusal(&place.pool, call).await,
            ("PB400".to_owned(), message.to_owned()),
            "{call}"
        );
    }
    let (code, message) = refusal(&place.pool, "pillarbox.enqueue('t', 'k', 'T', '{')").await;
    assert_eq!(code, "PB400");
    assert!(message.starts_with("the payload is not JSON: "), "{message}");
    assert!(drain(&mut place.reader(), page(10)).await.is_empty());
    // The operator can set the payload limit.
    for (limit, message) in [
        ("10", "the payload has 11 bytes; 10 are allowed."),
        (
            "1MB",
            "the setting pillarbox.payload_bytes_max is \"1MB\", and must be a number of bytes",
        ),
    ] {
        let set = "do $$ begin execute
            format('alter database %I set pillarbox.payload_bytes_max = ''LIMIT''', current_database()); end $$";
        place.run(&set.replace("LIMIT", limit)).await;
        let strict = PgPool::connect(&place.url).await.unwrap();
        let (code, told) = refusal(&strict, "pillarbox.enqueue('t', 'k', 'T', '\"123456789\"')").await;
        assert!(code == "PB400" && told.starts_with(message), "{code} {told}");
    }
}

#[tokio::test]
async fn a_sleeping_relay_is_woken_by_the_function() {
    let Some(place) = place().await else { return };
    let mut listener = sqlx::postgres::PgListener::connect(&place.url).await.unwrap();
    listener.listen("pillarbox:outbox_events").await.unwrap();
    id(&place.pool, "pillarbox.enqueue('t', 'awake', 'T', '{}')")
        .await
        .unwrap();
    place.store.waker().unwrap().set_asleep(true).await.unwrap();
    id(&place.pool, "pillarbox.enqueue('t', 'asleep', 'T', '{}')")
        .await
        .unwrap();
    place.store.waker().unwrap().set_asleep(false).await.unwrap();
    // Earlier notifications arrive before this one.
    place
        .run("select pg_notify('pillarbox:outbox_events', 'end')")
        .await;
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last| last != "end") {
        let next = tokio::time::timeout(DEADLINE, listener.recv())
            .await
            .unwrap()
            .unwrap();
        heard.push(next.payload().to_owned());
    }
    assert_eq!(heard, ["", "end"]);
}

#[tokio::test]
async fn with_lock_key_a_second_writer_of_the_key_waits_for_the_first() {
    let Some(place) = place().await else { return };
    let call = |key: &str| format!("select pillarbox.enqueue('t', '{key}', 'T', '{{}}', lock_key => true)");
    let mut first = place.pool.begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(call("a")))
        .execute(&mut *first)
        .await
        .unwrap();
    // Another key must not wait.
    place.run(&call("b")).await;
    let mut second = place.pool.acquire().await.unwrap();
    let pid = sqlx::query("select pg_backend_pid()")
        .fetch_one(&mut *second)
        .await
        .unwrap()
        .get::<i32, _>(0);
    let sql = call("a");
    let waiting = tokio::spawn(async move {
        let second: &mut PgConnection = &mut second;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(second).await.map(drop)
    });
    let waits =
        format!("select count(*) from pg_locks where pid = {pid} and locktype = 'advisory' and not granted");
    wait::until("the second writer waits for the lock", async || {
        place.number(&waits).await > 0
    })
    .await;
    // The second writer has no seq yet, so this event is ordered before it.
    sqlx::raw_sql(AssertSqlSafe(call("a")))
        .execute(&mut *first)
        .await
        .unwrap();
    let last: i64 = sqlx::query_scalar("select max(seq) from outbox_events")
        .fetch_one(&mut *first)
        .await
        .unwrap();
    first.commit().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(
        place
            .number(&format!("select count(*) from outbox_events where seq > {last}"))
            .await,
        1
    );
}
