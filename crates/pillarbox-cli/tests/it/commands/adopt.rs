//! Tables that exist: adopting them, and what happens to their rows.

mod presets;

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
