//! Backpressure in PostgreSQL, where SQL decides.

mod judged;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use pillarbox::{EnqueueError, Enqueued, Event, Outbox, pressure::Limit};
use pillarbox_relay::{
    pressure::{Class, Gauge},
    route::Pattern,
    store::Admin,
};
use pillarbox_testkit::wait;
use sqlx::postgres::PgDatabaseError;

use super::{DEADLINE, Place, event, place};

fn class(name: &str, topics: &[&str], soft: Option<u64>, hard: Option<u64>) -> Class {
    Class {
        name: name.into(),
        topics: topics.iter().map(|topic| Pattern::new(topic).unwrap()).collect(),
        limit: Limit {
            soft,
            hard,
            max_delay: Duration::from_millis(100),
        },
    }
}

async fn enqueue(place: &Place, topic: &str) -> Result<Enqueued, EnqueueError> {
    let mut tx = place.pool.begin().await.unwrap();
    let enqueued = Outbox::default()
        .enqueue(&mut tx, &Event::to(topic).event_type("X").aggregate("thing", "1"))
        .await?;
    tx.commit().await.unwrap();
    Ok(enqueued)
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_usable_and_nothing_behind() {
    let Some(place) = place().await else { return };
    place.run("create table orders (id int)").await;
    place
        .store
        .set_classes(&[class("bulk", &["report.>"], None, Some(3))])
        .await
        .unwrap();
    for _ in 0..3 {
        let _ = enqueue(&place, "report.day").await;
    }
    for outbox in [Outbox::default(), Outbox::default().serialise_keys()] {
        let mut tx = place.pool.begin().await.unwrap();
        sqlx::query("insert into orders values (1)")
            .execute(&mut *tx)
            .await
            .unwrap();
        // More events than fit into one statement. Only the last one has a topic that is refused.
        let mut events: Vec<Event> = (0..1_500).map(|n| event(&format!("k{n}"))).collect();
        events.push(Event::to("report.day").event_type("X").aggregate("thing", "1"));
        let refused = outbox.enqueue_all(&mut tx, &events).await;
        match refused {
            Err(EnqueueError::Busy {
                class,
                pending,
                limit,
                retry_after,
                ..
            }) => {
                assert_eq!((&*class, limit, retry_after), ("bulk", 3, Duration::from_secs(5)));
                assert!(pending >= 3);
            }
            other => panic!("{other:?}"),
        }
        sqlx::query("insert into orders values (2)")
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(place.number("select count(*) from orders").await, 4);
    assert!(place.number("select count(*) from outbox_events").await <= 3);
}

#[tokio::test]
async fn above_the_soft_limit_the_database_waits_before_it_locks_or_writes() {
    let Some(place) = place().await else { return };
    let mut slow = class("bulk", &[], Some(1), Some(1_000));
    slow.limit.max_delay = Duration::from_secs(5_000);
    place.store.set_classes(&[slow]).await.unwrap();
    place.run("update outbox_events_pressure set pending = 900").await;
    for outbox in [Outbox::default(), Outbox::default().serialise_keys()] {
        let mut tx = place.pool.begin().await.unwrap();
        let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        let pressure = Outbox::default().pressure(&mut tx, "t").await.unwrap().unwrap();
        assert!(pressure.delay > Duration::from_secs(4_000), "{pressure:?}");
        let event = event("a");
        let writing = tokio::spawn(async move { outbox.enqueue(&mut tx, &event).await });
        let sleeping =
            format!("select count(*) from pg_stat_activity where pid = {pid} and wait_event = 'PgSleep'");
        wait::until("the writer sleeps", async || place.number(&sleeping).await > 0).await;
        let locks = format!("select count(*) from pg_locks where pid = {pid} and locktype = 'advisory'");
        assert_eq!(
            place.number(&locks).await,
            0,
            "the key must not be locked while the producer waits"
        );
        // `is_called` is false: no seq was taken before the wait.
        assert_eq!(
            place
                .number("select count(*) from outbox_events_seq where is_called")
                .await,
            0
        );
        place.run(&format!("select pg_cancel_backend({pid})")).await;
        assert!(writing.await.unwrap().is_err());
    }
}

/// There is no relay, as if it had been killed or had stalled for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_at_full_speed_hold_the_backlog_at_the_hard_limit_without_a_relay() {
    const WRITERS: usize = 12;
    const HARD: u64 = 500;
    let Some(place) = place().await else { return };
    let place = Arc::new(place);
    place.run("create table orders (id int)").await;
    let classes = [
        class("money", &["money.>"], None, None),
        class("rest", &[], None, Some(HARD)),
    ];
    place.store.set_classes(&classes).await.unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let writer = || {
        let (place, refused) = (place.clone(), refused.clone());
        tokio::spawn(async move {
            while refused.load(Ordering::Relaxed) < 20 * WRITERS {
                match enqueue(&place, "report.day").await {
                    Ok(_) => {}
                    Err(EnqueueError::Busy { .. }) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(|_| writer()).collect();
    for writer in writers {
        tokio::time::timeout(DEADLINE, writer).await.unwrap().unwrap();
    }
    let pending = place.store.status().await.unwrap().pending;
    let most = HARD + WRITERS as u64;
    assert!((HARD - 1..=most).contains(&pending), "{pending}");
    place.run("insert into orders values (1)").await;
    enqueue(&place, "money.out").await.unwrap();
    place.store.set_classes(&[]).await.unwrap();
    assert_eq!(
        place.number("select count(*) from outbox_events_pressure").await,
        0
    );
    enqueue(&place, "report.day").await.unwrap();
}

#[tokio::test]
async fn the_sql_function_raises_its_own_sqlstate_with_the_figures() {
    let Some(place) = place().await else { return };
    let ask = || sqlx::query("select outbox_events_mind_pressure('report.day')").execute(&place.pool);
    ask().await.unwrap();
    place
        .store
        .set_classes(&[class("bulk", &["report.>"], None, Some(3))])
        .await
        .unwrap();
    ask().await.unwrap();
    place
        .run("update outbox_events_pressure set pending = 30, oldest_at = now() - interval '9 seconds'")
        .await;
    let error = ask().await.unwrap_err();
    let told = error
        .as_database_error()
        .unwrap()
        .downcast_ref::<PgDatabaseError>();
    assert_eq!(told.code(), "PB429");
    assert!(
        told.message().contains("class bulk") && told.hint().is_some(),
        "{told:?}"
    );
    let detail: serde_json::Value = serde_json::from_str(told.detail().unwrap()).unwrap();
    assert_eq!(detail["class"], "bulk");
    assert_eq!(detail["retry_after_ms"], 5_000);
    assert!(
        detail["pending"].as_i64().unwrap() >= 30 && detail["oldest_ms"].as_i64().unwrap() >= 9_000,
        "{detail}"
    );
}

#[tokio::test]
async fn an_applications_role_needs_to_read_the_figures_and_gets_that_with_the_upgrade() {
    let Some(place) = place().await else { return };
    let role = format!("app_{}", uuid::Uuid::now_v7().simple());
    // The grants of version 3.
    place
        .run(&format!(
            "create role {role};
             grant insert, select on outbox_events to {role};
             grant select on outbox_events_asleep to {role};
             drop function outbox_events_mind_pressure, outbox_events_pressure_of;
             drop table outbox_events_pressure;
             update outbox_events_meta set version = 3"
        ))
        .await;
    let mut tx = place.pool.begin().await.unwrap();
    let error = Outbox::default().enqueue(&mut tx, &event("a")).await.unwrap_err();
    assert!(matches!(error, EnqueueError::NotMigrated { .. }), "{error:?}");
    drop(tx);
    let done = place.store.migrate().await.unwrap();
    assert!(done[0].contains("was at version 3"), "{done:?}");
    place
        .store
        .set_classes(&[class("bulk", &[], None, Some(2))])
        .await
        .unwrap();
    let mut refused = false;
    for _ in 0..3 {
        let mut tx = place.pool.begin().await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(format!("set local role {role}")))
            .execute(&mut *tx)
            .await
            .unwrap();
        match Outbox::default().enqueue(&mut tx, &event("a")).await {
            Ok(_) => tx.commit().await.unwrap(),
            Err(error) => refused = matches!(error, EnqueueError::Busy { .. }),
        }
    }
    assert!(refused);
    place
        .run(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

/// Planning takes longer than writing. PostgreSQL estimates the cost of a plan to decide whether to plan
/// again. The estimate depends on the machine, the size of the table and the topics, so the test varies them.
#[tokio::test]
async fn the_statement_is_planned_once_whatever_plans_are_thought_to_cost() {
    let Some(place) = place().await else { return };
    let limits = [
        class("a", &["other.>"], Some(1 << 29), Some(1 << 30)),
        class("rest", &[], None, Some(1 << 30)),
    ];
    for full in [false, true] {
        if full {
            place.run(FILL).await;
        }
        for classes in [&[][..], &limits] {
            place.store.set_classes(classes).await.unwrap();
            for costs in COSTS {
                for events in [1, 20] {
                    let (generic, custom) = plans(&place, costs, events).await;
                    let count = classes.len();
                    assert!(
                        generic >= 10 && custom <= 6,
                        "{custom} custom plans, {generic} generic plans, with {events} events, {count} classes, {costs}, full: {full}"
                    );
                }
            }
        }
    }
}

const COSTS: [&str; 4] = [
    "",
    "set random_page_cost = 1",
    "set cpu_tuple_cost = 1",
    "set cpu_operator_cost = 0.0001",
];

const FILL: &str = "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload)
    select 't', 'T', 'a', n, '{}' from generate_series(1, 20000) n;
    analyze";

/// How often the statement ran with the generic plan, and how often with a custom one.
async fn plans(place: &Place, costs: &str, many: usize) -> (i64, i64) {
    let pool = sqlx::PgPool::connect(&place.url).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(costs.to_owned()))
        .execute(&mut *tx)
        .await
        .unwrap();
    for n in 0..20 {
        let events: Vec<Event> = (0..many).map(|m| event(&format!("k{n}.{m}"))).collect();
        Outbox::default().enqueue_all(&mut tx, &events).await.unwrap();
    }
    // A single event has its own statement.
    let plans = "select generic_plans, custom_plans from pg_prepared_statements
                 where statement like any (array['-- Inserts one event%', '-- Inserts events%'])";
    sqlx::query_as(plans).fetch_one(&mut *tx).await.unwrap()
}

#[tokio::test]
async fn the_function_for_any_language_refuses_as_the_library_does() {
    let Some(place) = place().await else { return };
    let call = || sqlx::query("select pillarbox.enqueue('report.day', 'k', 'X', '{}')").execute(&place.pool);
    call().await.unwrap();
    place
        .store
        .set_classes(&[class("bulk", &["report.>"], None, Some(1))])
        .await
        .unwrap();
    let error = call().await.unwrap_err();
    assert_eq!(
        error.as_database_error().unwrap().code().unwrap(),
        "PB429",
        "{error}"
    );
    assert_eq!(place.number("select count(*) from outbox_events").await, 1);
}

/// The cost is printed and not asserted, because machines are noisy.
#[tokio::test]
async fn the_cost_of_the_check_is_printed() {
    let Some(place) = place().await else { return };
    let mut tx = place.pool.begin().await.unwrap();
    let outbox = Outbox::default();
    let events: Vec<Event> = (0..2_000).map(|n| event(&format!("k{n}"))).collect();
    let three = [
        class("a", &["other.>"], Some(1 << 29), Some(1 << 30)),
        class("money", &["money.>"], None, None),
        class("rest", &[], Some(1 << 29), Some(1 << 30)),
    ];
    let mut told = Vec::new();
    for (half, classes) in [(&events[..1_000], &[][..]), (&events[1_000..], &three)] {
        place.store.set_classes(classes).await.unwrap();
        outbox.enqueue(&mut tx, &event("warm")).await.unwrap();
        let start = Instant::now();
        for event in half {
            outbox.enqueue(&mut tx, event).await.unwrap();
        }
        told.push(start.elapsed().as_micros() as f64 / half.len() as f64);
    }
    println!(
        "enqueue in an open transaction: {:.0} µs without classes, {:.0} µs with three",
        told[0], told[1]
    );
}
