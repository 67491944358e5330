//! Tables that exist: each preset with its own table and the statement of its old producer.

use std::collections::{BTreeMap, BTreeSet};

use pillarbox_testkit::webhooks::{Receiver, Reply, Request};
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::*;
use crate::tables;

/// A database with a table that exists, and a folder with the configuration of its adoption. Events go to a receiver: it
/// refuses those with `poison` in the payload always, and those with `flaky` once.
struct Team {
    pool: PgPool,
    folder: TempDir,
    receiver: Receiver,
}

impl Team {
    /// `None`: there is no server.
    async fn with(table: &str, layout: &str, message: &str, ddl: &str) -> Option<Self> {
        let postgres = servers::postgres().await?;
        let url = postgres.database().await;
        let pool = PgPool::connect(&url).await.unwrap();
        let receiver = Receiver::start();
        let seen = std::sync::Mutex::new(BTreeSet::new());
        receiver.answer_by(move |request| {
            let first = seen.lock().unwrap().insert(request.body.clone());
            let fails = request.body.contains("poison") || first && request.body.contains("flaky");
            Reply::Status(if fails { 400 } else { 204 })
        });
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "outbox:\n  database: {{ url: \"{url}\", table_name: {table} }}\n  layout: {layout}\n  \
             retry_policy: {{ default_max_attempts: 2, default_base_delay_ms: 20, enable_jitter: false }}\n  \
             sinks: {{ out: {{ url: \"http://127.0.0.1:{}/events\" }} }}\n  \
             routes: [{{ topic: \">\", sink: out, {message} }}]\n",
            receiver.port()
        );
        std::fs::write(folder.path().join("pillarbox.yaml"), config).unwrap();
        let team = Self {
            pool,
            folder,
            receiver,
        };
        team.sql(ddl).await;
        Some(team)
    }

    async fn sql(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&self.pool)
            .await
            .unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    /// The rows of a query, whose values are texts.
    async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let rows = sqlx::query(AssertSqlSafe(sql.to_owned()))
            .fetch_all(&self.pool)
            .await
            .unwrap();
        rows.iter()
            .map(|row| {
                (0..row.len())
                    .map(|n| {
                        row.get::<Option<String>, _>(n)
                            .unwrap_or_else(|| "null".to_owned())
                    })
                    .collect()
            })
            .collect()
    }

    fn adopt(&self, args: &[&str]) -> Output {
        let args: Vec<&str> = ["adopt"].iter().chain(args).copied().collect();
        run(self.folder.path(), &args)
    }

    fn apply(&self) {
        let applied = self.adopt(&["--apply"]);
        assert_eq!(code(&applied), 0, "{}", stderr(&applied));
    }

    /// Runs a relay until nothing waits. Returns the last request for each event, by its id.
    fn deliver(&self) -> BTreeMap<String, Request> {
        let relay = Running::start(self.folder.path(), &["run", "--no-http"]);
        for state in ["pending", "failed", "held", "pending"] {
            until_none(self.folder.path(), state);
        }
        let (ended, _) = relay.stop();
        assert_eq!(ended, 0);
        let requests = self.receiver.requests().into_iter();
        requests
            .map(|request| (request.id().to_owned(), request))
            .collect()
    }
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_says_what_it_would_do_and_can_be_undone() {
    let ddl = r#"
        create type "Stage" as enum ('new', 'sent', 'broken');
        create table "events" (
            "eventNo" bigint generated always as identity primary key, "eventType" text, body json,
            stage "Stage" not null default 'new', at timestamp not null default (now() at time zone 'UTC')
        )"#;
    let layout = r#"{ fields: { id: eventNo, topic: "shop.{eventType}", event_type: eventType, aggregate_type: "'shop'",
        aggregate_id: body->shop, payload: body, created_at: at },
        states: { pending: { stage: new }, published: { stage: sent }, dead: { stage: broken } } }"#;
    let Some(team) = Team::with("events", layout, "envelope: pillarbox", ddl).await else {
        return;
    };
    let catalogue = "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace
                     union all select p.proname::text from pg_proc p where p.pronamespace = 'public'::regnamespace
                     union all select t.tgname::text from pg_trigger t
                     union all select y.typname::text from pg_type y where y.typnamespace = 'public'::regnamespace order by 1";
    let before = team.rows(catalogue).await;

    let early = run(team.folder.path(), &["run", "--no-http"]);
    assert_eq!(code(&early), 2);
    assert!(stderr(&early).contains("pillarbox adopt"), "{}", stderr(&early));

    let seen = team.adopt(&[]);
    assert_eq!(code(&seen), 0, "{}", stderr(&seen));
    assert!(stdout(&seen).contains("a trigger on events"), "{}", stdout(&seen));
    assert!(
        stderr(&seen).contains("warning: stop the worker"),
        "{}",
        stderr(&seen)
    );
    assert_eq!(team.rows(catalogue).await, before, "looking changes nothing");

    team.sql(r#"insert into events ("eventType", body) values ('sold', '{"shop": "s1"}')"#)
        .await;
    team.apply();
    team.apply();
    let refuses_to_run = |why: &str| {
        let refused = run(team.folder.path(), &["run", "--no-http"]);
        assert_eq!(code(&refused), 2);
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    };
    team.sql("alter table events disable trigger events_pillarbox_capture")
        .await;
    refuses_to_run("is disabled");
    team.sql("alter table events enable trigger events_pillarbox_capture")
        .await;
    // As an adoption leaves it that was interrupted before it copied the last rows.
    team.sql(
        r#"alter table events disable trigger user;
           insert into events ("eventType", body) values ('early', '{"shop": "s1"}');
           alter table events enable trigger user;
           create table events_pillarbox_backlog as select 7::bigint as seq, "eventNo" as id from events where "eventType" = 'early'"#,
    )
    .await;
    refuses_to_run("interrupted");
    let seen = stderr(&team.adopt(&[]));
    assert!(seen.contains("still to be copied"), "{seen}");
    team.apply();
    assert_eq!(
        team.rows("select seq::text from events_pillarbox where topic = 'shop.early'")
            .await,
        [["7"]]
    );
    team.sql(
        r#"insert into events ("eventType", body) values ('sold', '{"shop": "s1", "n": 2}'), (null, null)"#,
    )
    .await;
    let events = team.deliver();
    let topics: Vec<Value> = events
        .values()
        .map(|event| event.json()["topic"].clone())
        .collect();
    assert_eq!(topics, ["shop.sold", "shop.early", "shop.sold"]);
    assert_eq!(
        team.rows("select stage::text from events order by \"eventNo\"")
            .await,
        [["sent"], ["sent"], ["sent"], ["broken"]]
    );

    let undone = team.adopt(&["--undo"]);
    assert_eq!(code(&undone), 0, "{}", stderr(&undone));
    assert_eq!(team.rows(catalogue).await, before);
    team.sql(r#"insert into events ("eventType") values ('x')"#).await;
    let again = team.adopt(&["--undo"]);
    assert!(stderr(&again).contains("nothing to undo"), "{}", stderr(&again));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layout_that_does_not_fit_is_refused_with_the_reason() {
    let Some(team) = Team::with(
        "outbox_events",
        "{ preset: status-words, fields: { topic: kind } }",
        "envelope: pillarbox",
        "create table outbox_events (id uuid, status text)",
    )
    .await
    else {
        return;
    };
    let refused = stderr(&team.adopt(&["--apply"]));
    assert!(refused.contains("no column `aggregate_id`"), "{refused}");
    assert!(refused.contains("Its columns are id, status"), "{refused}");
    let config = team.folder.path().join("pillarbox.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("status-words", "status-word")).unwrap();
    let refused = stderr(&team.adopt(&[]));
    assert!(refused.contains("Did you mean `status-words`?"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_table_refuses_does_not_stop_delivery_and_is_written_later() {
    let Some(team) = Team::with(
        "jobs",
        r#"{ fields: { id: id, topic: "'jobs'", event_type: "'Job'", aggregate_type: "'job'", aggregate_id: id, payload: body },
             states: { pending: { done: 0 }, published: { done: 1 }, dead: { done: 2 } } }"#,
        "envelope: pillarbox",
        "create table jobs (id int primary key, body jsonb, done int not null default 0, check (done <> 1 or id <> 2))",
    )
    .await
    else {
        return;
    };
    team.apply();
    team.sql("insert into jobs (id, body) select n, '{}' from generate_series(1, 3) n")
        .await;
    assert_eq!(team.deliver().len(), 3);
    let done = "select id::text, done::text from jobs order by 1";
    assert_eq!(team.rows(done).await, [["1", "1"], ["2", "0"], ["3", "1"]]);
    let warned = stderr(&team.adopt(&[]));
    assert!(
        warned.contains("does not show the state of 1 of its events") && warned.contains("jobs_check"),
        "{warned}"
    );

    team.sql("alter table jobs drop constraint jobs_check").await;
    team.apply();
    assert_eq!(team.rows(done).await, [["1", "1"], ["2", "1"], ["3", "1"]]);
    assert!(!stderr(&team.adopt(&[])).contains("does not show"));
}

/// Ids of other types, each with an index that the relay uses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_can_have_any_usual_type_and_rows_are_found_by_their_index() {
    for (sql_type, ids) in [
        ("bigint", ["1800000000000000000", "-7"]),
        ("numeric(12,2)", ["1.50", "123456789.00"]),
        (r#"text collate "C""#, ["01J0ZX", "it's"]),
        ("char(6)", ["ab", "abcdef"]),
        ("varchar(40)", ["a b", "c"]),
    ] {
        let layout = r#"{ fields: { id: id, topic: "'t'", event_type: "'E'", aggregate_type: "'a'", aggregate_id: id,
            payload: body, headers: meta }, states: { pending: { done: false }, published: { done: true }, dead: { done: null } } }"#;
        let layout = layout.replace("dead: { done: null }", "dead: { done: is null }");
        let ddl = format!(
            "create table jobs (id {sql_type} primary key, body text, meta json, done boolean default false)"
        );
        let Some(team) = Team::with("jobs", &layout, "envelope: pillarbox", &ddl).await else {
            return;
        };
        assert_eq!(code(&team.adopt(&["--apply", "--from", "now"])), 0);
        let values: Vec<String> = ids
            .iter()
            .map(|id| {
                format!(
                    r#"('{}', '{{"text": 1}}', '{{"a b": 1, "c": "d\ne", "f": [1]}}')"#,
                    id.replace('\'', "''")
                )
            })
            .collect();
        team.sql(&format!(
            "insert into jobs (id, body, meta) values {}",
            values.join(", ")
        ))
        .await;
        let events = team.deliver();
        assert_eq!(events.len(), 2, "{sql_type}");
        for event in events.values() {
            assert_eq!(
                event.json()["headers"],
                serde_json::json!({ "c": "d e", "f": "[1]" })
            );
        }
        // The server counts with a delay.
        wait::until_ok(async || {
            let scans =
                "select (idx_scan > 0)::text, seq_scan::text from pg_stat_user_tables where relname = 'jobs'";
            let counted = team.rows(scans).await;
            if counted == [["true", "0"]] {
                Ok(())
            } else {
                Err(format!("{sql_type}: {counted:?}"))
            }
        })
        .await;
        assert_eq!(
            team.rows("select done::text from jobs").await,
            [["true"], ["true"]],
            "{sql_type}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_refuses_what_would_be_lost() {
    let Some(team) = Team::with(
        tables::DEBEZIUM.name,
        "{ preset: debezium }",
        "envelope: debezium",
        tables::DEBEZIUM.ddl,
    )
    .await
    else {
        return;
    };
    assert_eq!(code(&team.adopt(&["--apply", "--from", "now"])), 0);
    team.sql(&tables::DEBEZIUM.insert(1)).await;
    let refused = stderr(&team.adopt(&["--undo"]));
    assert!(refused.contains("1 events are not delivered"), "{refused}");
    let relay = Running::start(team.folder.path(), &["run", "--no-http"]);
    relay.says("took over lanes");
    let refused = stderr(&team.adopt(&["--undo"]));
    assert!(refused.contains("relays are running"), "{refused}");
    until_none(team.folder.path(), "pending");
    assert_eq!(relay.stop().0, 0);

    // Adopting again must not use a seq twice, and a changed table can be left.
    assert_eq!(code(&team.adopt(&["--undo"])), 0);
    assert_eq!(code(&team.adopt(&["--apply", "--from", "now"])), 0);
    team.sql(&tables::DEBEZIUM.insert(2)).await;
    team.sql("drop trigger outbox_pillarbox_capture on outbox").await;
    assert_eq!(code(&team.adopt(&["--apply", "--from", "now"])), 0);
    team.sql(&tables::DEBEZIUM.insert(3)).await;
    assert_eq!(
        team.rows("select (max(seq) - min(seq))::text from outbox_pillarbox")
            .await,
        [["1"]]
    );
    team.sql("alter table outbox rename column type to kind").await;
    let refused = stderr(&team.adopt(&["--undo"]));
    assert!(
        refused.contains("no column `type`") && refused.contains("--undo --force"),
        "{refused}"
    );
    let undone = team.adopt(&["--undo", "--force"]);
    assert_eq!(code(&undone), 0, "{}", stderr(&undone));
    team.sql("insert into outbox values (gen_random_uuid(), 'Order', '4', 'OrderCreated', '{}')")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_that_failed_in_the_middle_can_be_undone() {
    let layout = r#"{ fields: { id: id, topic: "'t'", event_type: "'E'", aggregate_type: "'a'", aggregate_id: id, payload: body },
        states: { pending: { stage: nwe }, published: { stage: sent }, dead: { stage: broken } } }"#;
    let ddl = "create type stage as enum ('new', 'sent', 'broken');
               create table jobs (id int primary key, body jsonb, stage stage not null default 'new')";
    let Some(team) = Team::with("jobs", layout, "envelope: pillarbox", ddl).await else {
        return;
    };
    let refused = team.adopt(&["--apply"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("nwe"), "{}", stderr(&refused));
    let undone = team.adopt(&["--undo"]);
    assert_eq!(code(&undone), 0, "{}", stderr(&undone));
    let own = "select count(*)::text from pg_class where relname like 'jobs_pillarbox%'";
    assert_eq!(team.rows(own).await, [["0"]]);
}
