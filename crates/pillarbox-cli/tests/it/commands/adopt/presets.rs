//! Each preset with its own table and the statement of its old producer.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_a_processed_flag_keeps_its_own_columns() {
    let Some(team) = Team::with(
        "outbox_events",
        "{ preset: processed-flag, fields: { partition_key: payload->team_id } }",
        "shape: { preset: payload }",
        tables::PROCESSED_FLAG.ddl,
    )
    .await
    else {
        return;
    };
    let produce = async |id: &str, note: &str| {
        team.sql(&format!(
            "insert into outbox_events (id, stream, topic, payload)
             values ('{id}', 'STREAM_PAYOUT', 'payout.generated', '{{\"payout_id\":\"{note}\",\"team_id\":\"t-{id}\"}}'::jsonb)"
        ))
        .await;
    };
    produce("p_waits", "w").await;
    produce("p_done", "d").await;
    produce("p_given_up", "g").await;
    team.sql("update outbox_events set processed = true, processed_at = now() where id = 'p_done'")
        .await;
    team.sql("update outbox_events set error = 'invalid payload' where id = 'p_given_up'")
        .await;

    team.apply();
    for id in ["p_good", "p_flaky", "p_poison"] {
        produce(id, id).await;
    }
    let events = team.deliver();

    let ids: Vec<&str> = events.keys().map(String::as_str).collect();
    assert_eq!(ids, ["p_flaky", "p_good", "p_poison", "p_waits"]);
    assert_eq!(
        events["p_good"].json(),
        serde_json::json!({ "payout_id": "p_good", "team_id": "t-p_good" })
    );
    assert_eq!(
        team.rows("select topic, stream, partition_key from outbox_events_pillarbox where id = 'p_good'")
            .await,
        [["payout.generated", "STREAM_PAYOUT", "t-p_good"]]
    );
    // A row that is copied comes before new ones, also before one that was inserted while it was copied.
    assert_eq!(
        team.rows("select id, (seq > 1000000000)::text from outbox_events_pillarbox order by seq limit 2")
            .await,
        [["p_waits", "false"], ["p_good", "true"]]
    );
    assert_eq!(
        team.rows("select id, processed::text, (processed_at is not null)::text, error from outbox_events order by id")
            .await,
        [
            ["p_done", "true", "true", "null"],
            ["p_flaky", "true", "true", "null"],
            ["p_given_up", "false", "false", "invalid payload"],
            ["p_good", "true", "true", "null"],
            ["p_poison", "false", "false", "unrecoverable"],
            ["p_waits", "true", "true", "null"],
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_status_words_keeps_its_own_columns() {
    let Some(team) = Team::with(
        "outbox_events",
        "{ preset: status-words }",
        "shape: { preset: message-id }",
        tables::STATUS_WORDS.ddl,
    )
    .await
    else {
        return;
    };
    let produce = async |n: u8, note: &str| {
        team.sql(&format!(
            "insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
             values ('00000000-0000-4000-8000-00000000000{n}', 'Order', '00000000-0000-4000-8000-0000000000a{n}', 'OrderCreated',
                     '{{\"note\":\"{note}\"}}')"
        ))
        .await;
    };
    produce(1, "waits").await;
    produce(2, "done").await;
    produce(3, "tried before").await;
    team.sql("update outbox_events set status = 'PUBLISHED' where id::text like '%2'; update outbox_events set retry_count = 1 where id::text like '%3'")
        .await;

    team.apply();
    for (n, note) in [(4, "good"), (5, "flaky"), (6, "poison")] {
        produce(n, note).await;
    }
    let events = team.deliver();

    let ids: Vec<&str> = events.keys().map(|id| &id[35..]).collect();
    assert_eq!(ids, ["1", "3", "4", "5", "6"]);
    let id = "00000000-0000-4000-8000-000000000004";
    assert_eq!(
        events[id].json(),
        serde_json::json!({ "note": "good", "messageId": id })
    );
    assert_eq!(
        team.rows(&format!(
            "select topic, event_type, aggregate_type, aggregate_id from outbox_events_pillarbox where id = '{id}'"
        ))
        .await,
        [["Order.OrderCreated", "OrderCreated", "Order", "00000000-0000-4000-8000-0000000000a4"]]
    );
    let rows = team
        .rows(
            "select right(id::text, 1), status, retry_count::text, (processed_at is not null)::text,
                    (next_attempt_at > occurred_at)::text, left(last_error, 30)
             from outbox_events order by id",
        )
        .await;
    let error = rows[5][5].clone();
    assert!(error.contains("400"), "{error}");
    assert_eq!(
        rows,
        [
            ["1", "PUBLISHED", "0", "true", "false", "null"],
            ["2", "PUBLISHED", "0", "false", "false", "null"],
            ["3", "PUBLISHED", "1", "true", "false", "null"],
            ["4", "PUBLISHED", "0", "true", "false", "null"],
            ["5", "PUBLISHED", "1", "true", "true", &error],
            ["6", "FAILED", "2", "false", "true", &error],
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_project_events_keeps_its_own_columns() {
    let Some(team) = Team::with(
        "event_outbox",
        "{ preset: project-events }",
        "shape: { preset: event-id, headers: { project: project_id } }",
        tables::PROJECT_EVENTS.ddl,
    )
    .await
    else {
        return;
    };
    team.apply();
    let project = "00000000-0000-4000-8000-0000000000b1";
    for note in ["good", "flaky", "poison"] {
        team.sql(&format!(
            "insert into event_outbox (aggregate_type, aggregate_id, project_id, user_id, event_type, payload)
             values ('chat_session', gen_random_uuid(), '{project}', gen_random_uuid(), 'message_created', '{{\"note\":\"{note}\"}}')"
        ))
        .await;
    }
    let events = team.deliver();
    assert_eq!(events.len(), 3);
    for (id, event) in &events {
        assert_eq!(event.json()["event_id"], **id);
        assert_eq!(event.headers["project"], project);
    }
    assert_eq!(
        team.rows(
            "select distinct topic, project_id, (user_id is not null)::text from event_outbox_pillarbox"
        )
        .await,
        [["chat_session.message_created", project, "true"]]
    );
    assert_eq!(
        team.rows(
            "select payload->>'note', status, retry_count::text, (published_at is not null)::text,
                    (next_retry_at is not null)::text, (last_error is not null)::text
             from event_outbox order by 1"
        )
        .await,
        [
            ["flaky", "published", "1", "true", "true", "true"],
            ["good", "published", "0", "true", "false", "false"],
            ["poison", "failed", "2", "false", "true", "true"],
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_outbox_keeps_its_own_columns_and_retry_settings() {
    let Some(team) = Team::with(
        "storage_outbox",
        "{ preset: storage-outbox }",
        "shape: { preset: storage-outbox }",
        tables::STORAGE_OUTBOX.ddl,
    )
    .await
    else {
        return;
    };
    let produce = async |n: u8, note: &str| {
        team.sql(&format!(
            "insert into storage_outbox (outbox_id, aggregate_id, aggregate_type, event_type, event_payload, event_metadata,
                                         sequence_number, target_topic, partition_key, max_attempts, base_delay_ms)
             values ('outbox_{n}', 'tx-{n}', 'transaction', 'STORAGE_TRANSACTION_COMMITTED', '{{\"note\":\"{note}\"}}',
                     '{{\"correlation_id\":\"c-{n}\",\"event_version\":\"2.1.0\",\"actor\":{{\"id\":7}},\"none\":null}}',
                     {n}, 'storage.transactions', 'tx-{n}', 3, 20)"
        ))
        .await;
    };
    produce(1, "was being tried").await;
    produce(2, "waited for a retry").await;
    team.sql(
        "update storage_outbox set delivery_status = 'processing' where outbox_id = 'outbox_1';
         update storage_outbox set delivery_status = 'failed', delivery_attempts = 1, next_retry_at = now() where outbox_id = 'outbox_2'",
    )
    .await;
    team.apply();
    for (n, note) in [(3, "good"), (4, "flaky"), (5, "poison")] {
        produce(n, note).await;
    }
    let events = team.deliver();
    assert_eq!(events.len(), 5);
    let good = &events["outbox_3"];
    assert_eq!(
        good.json(),
        serde_json::json!({
            "note": "good",
            "metadata": {
                "correlation_id": "c-3", "event_version": "2.1.0", "actor": { "id": 7 }, "none": null,
                "outbox_id": "outbox_3", "sequence_number": 3
            }
        })
    );
    let headers = ["event_type", "aggregate_id", "correlation_id"].map(|name| good.headers[name].as_str());
    assert_eq!(headers, ["STORAGE_TRANSACTION_COMMITTED", "tx-3", "c-3"]);
    assert!(good.headers.keys().all(|name| !name.contains("row.")));
    assert_eq!(
        team.rows(
            "select topic, aggregate_version::text, schema_version::text, partition_key
             from storage_outbox_pillarbox where id = 'outbox_3'"
        )
        .await,
        [["storage.transactions", "3", "2", "tx-3"]]
    );
    assert_eq!(
        team.rows(
            "select right(outbox_id, 1), delivery_status, delivery_attempts::text, (first_attempt_at is not null)::text,
                    (last_attempt_at is not null)::text, (next_retry_at is not null)::text, (delivered_at is not null)::text
             from storage_outbox order by 1"
        )
        .await,
        [
            ["1", "delivered", "0", "true", "true", "false", "true"],
            ["2", "delivered", "1", "true", "true", "true", "true"],
            ["3", "delivered", "0", "true", "true", "false", "true"],
            ["4", "delivered", "1", "true", "true", "true", "true"],
            ["5", "dlq", "3", "true", "true", "true", "false"],
        ]
    );
}

/// A producer for Debezium often deletes the row in the transaction that inserts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_for_debezium_are_delivered_even_if_their_producer_deletes_them() {
    let Some(team) = Team::with(
        "outbox",
        "{ preset: debezium, delete_published: true }",
        "envelope: debezium",
        tables::DEBEZIUM.ddl,
    )
    .await
    else {
        return;
    };
    let insert = |n: u8, payload: &str| {
        format!(
            "insert into outbox values ('00000000-0000-4000-8000-00000000000{n}', 'Order', '{n}', 'OrderCreated', '{payload}')"
        )
    };
    team.sql(&insert(1, "{}")).await;
    let refused = team.adopt(&["--apply"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("--from now"), "{}", stderr(&refused));
    let applied = team.adopt(&["--apply", "--from", "now"]);
    assert_eq!(code(&applied), 0, "{}", stderr(&applied));

    team.sql(&insert(2, r#"{"a": 1}"#)).await;
    team.sql(&format!(
        "begin; {}; delete from outbox where type = 'OrderCreated' and aggregateid = '3'; commit",
        insert(3, "not JSON")
    ))
    .await;
    team.sql(&format!("begin; {}; rollback", insert(4, "{}"))).await;
    let events = team.deliver();
    let got: Vec<(&str, Value)> = events
        .iter()
        .map(|(id, event)| (&id[35..], event.json()))
        .collect();
    assert_eq!(
        got,
        [
            ("2", serde_json::json!({"a": 1})),
            ("3", serde_json::json!("not JSON"))
        ]
    );
    assert!(
        events
            .values()
            .all(|event| event.headers["eventtype"] == "OrderCreated")
    );
    assert_eq!(
        team.rows("select distinct topic from outbox_pillarbox").await,
        [["outbox.event.Order"]]
    );
    assert_eq!(team.rows("select aggregateid from outbox").await, [["1"]]);
}
