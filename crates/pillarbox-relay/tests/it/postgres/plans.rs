//! Cost: settling is HOT, and the statements that run often use their indexes, whatever the statistics say.

use pillarbox_relay::{
    Settlement, Store,
    store::postgres::{BY_RANGE, BY_SEQ, PLANS, complete},
};
use pillarbox_testkit::wait;
use sqlx::{Connection, PgConnection};

use super::{Place, drain, event, page, place};

/// Settings with which the planner prefers parallel workers.
const EAGER: &str = "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; \
                     set min_parallel_index_scan_size = 0";

async fn fill(place: &Place, rows: i64) {
    sqlx::query(
        "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload)
         select 'shop.order.placed', 'OrderPlaced', 'order', 'k-' || n % 5000, $2
         from generate_series(1, $1) n",
    )
    .bind(rows)
    .bind(std::str::from_utf8(&event("x").payload).unwrap())
    .execute(&place.pool)
    .await
    .unwrap();
}

async fn run(connection: &mut PgConnection, sql: String) -> Vec<sqlx::postgres::PgRow> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .fetch_all(connection)
        .await
        .unwrap()
}

/// A bit mask with all lanes.
fn lanes() -> String {
    format!("'\\x{}'", "ff".repeat(32))
}

#[tokio::test]
async fn settling_is_hot_and_one_statement_per_batch() {
    let Some(place) = place().await else { return };
    fill(&place, 20_000).await;
    let mut reader = place.reader();
    let before = place.store.statements();
    let mut count = 0;
    loop {
        let found = reader.next(page(1_000)).await.unwrap();
        count += found.events.len();
        let settlement = Settlement {
            published: found.events.iter().map(|e| e.seq).collect(),
            // Nothing, everything, or a part of a batch.
            logged: match count / 1_000 % 3 {
                0 => Vec::new(),
                1 => found.events.iter().map(|e| e.seq).collect(),
                _ => found.events.iter().map(|e| e.seq).step_by(2).collect(),
            },
            ..Settlement::default()
        };
        place.store.settle(&place.held, &settlement).await.unwrap();
        if !found.more {
            break;
        }
    }
    assert_eq!(count, 20_000);
    let statements = place.store.statements() - before;
    assert!(statements <= 44, "{statements} statements");
    let (updates, hot) = wait::until_ok(async || {
        let n = "from pg_stat_user_tables where relname = 'outbox_events'";
        let updates = place.number(&format!("select n_tup_upd {n}")).await;
        if updates >= 20_000 {
            return Ok((updates, place.number(&format!("select n_tup_hot_upd {n}")).await));
        }
        Err(format!("{updates} updates reported"))
    })
    .await;
    println!("{hot} of {updates} updates were HOT");
    assert!(hot * 100 >= updates * 95, "{hot} of {updates}");
    assert!(place.number("select count(*) from outbox_events_log").await > 8_000);
    // The look for an earlier entry of each event must not read the entries of others.
    let read = wait::until_ok(async || {
        let read = "select coalesce(sum(idx_tup_read), 0)::bigint from pg_stat_user_indexes where relname = 'outbox_events_log'";
        let scans = "select coalesce(sum(idx_scan), 0)::bigint from pg_stat_user_indexes where relname = 'outbox_events_log'";
        match place.number(scans).await {
            0 => Err("no scan is reported"),
            _ => Ok(place.number(read).await),
        }
    })
    .await;
    println!("{read} entries of the log were looked at");
    assert!(read < 20_000, "{read} entries were looked at");
}

#[tokio::test]
async fn hot_statements_go_by_their_indexes() {
    let Some(place) = place().await else { return };
    fill(&place, 30_000).await;
    let lanes = lanes();
    let seqs = format!(
        "'{{{}}}'",
        (500..1500).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
    );
    let epochs = format!("'{{{}}}'", vec!["0"; 256].join(","));
    let settle = include_str!("../../../src/store/postgres/sql/settle/published.sql").replace("{logged}", "");
    let statements = [
        (
            include_str!("../../../src/store/postgres/sql/discover/page.sql"),
            format!("null, '1:1:', 100, {lanes}, 1000, 1048576, 33554432, 9223372036854775807"),
            "outbox_events_pkey",
        ),
        (
            include_str!("../../../src/store/postgres/sql/discover/small.sql"),
            format!("null, '1:1:', 100, {lanes}, 1000, 32768, 9223372036854775807"),
            "outbox_events_pkey",
        ),
        (
            include_str!("../../../src/store/postgres/sql/discover/follow.sql"),
            format!("'100000', '{{5,6}}', {lanes}, 1000, 2001, 1048576, 33554432"),
            "outbox_events_txid",
        ),
        (
            include_str!("../../../src/store/postgres/sql/discover/late.sql"),
            format!("'{{5,6}}', '1:1:', {lanes}, '100000', 29000"),
            "outbox_events_txid",
        ),
        (
            include_str!("../../../src/store/postgres/sql/discover/below.sql"),
            format!("{epochs}, 29000"),
            "outbox_events_txid",
        ),
        (
            &settle.replace("{chosen}", BY_SEQ),
            format!("{epochs}, {seqs}"),
            "outbox_events_pkey",
        ),
        (
            &settle.replace("{chosen}", BY_RANGE),
            format!("{epochs}, 500, 755, {lanes}"),
            "outbox_events_pkey",
        ),
    ];
    let mut connection = PgConnection::connect(&place.url).await.unwrap();
    run(&mut connection, EAGER.to_owned()).await;
    run(&mut connection, PLANS.to_owned()).await;
    for analyzed in [false, true] {
        if analyzed {
            run(&mut connection, "analyze".to_owned()).await;
        }
        for mode in ["force_generic_plan", "force_custom_plan"] {
            run(&mut connection, format!("set plan_cache_mode = {mode}")).await;
            for (sql, arguments, index) in &statements {
                let sql = pillarbox::table::Tables::default().render(&complete(sql));
                run(&mut connection, "deallocate all".to_owned()).await;
                run(&mut connection, format!("prepare hot as {sql}")).await;
                let rows = run(
                    &mut connection,
                    format!("explain (costs off) execute hot({arguments})"),
                )
                .await;
                let plan: Vec<String> = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
                let plan = plan.join("\n");
                assert!(
                    plan.contains(&format!("using {index} on outbox_events ")),
                    "{mode}:\n{plan}"
                );
                for bad in [
                    "Seq Scan on outbox_events ",
                    "Bitmap Heap Scan on outbox_events ",
                    "Gather",
                ] {
                    assert!(!plan.contains(bad), "{mode}:\n{plan}");
                }
                if *index == "outbox_events_pkey" {
                    assert!(!plan.contains("Sort"), "{mode}:\n{plan}");
                } else {
                    assert!(!plan.contains("outbox_events_pkey"), "{mode}:\n{plan}");
                }
            }
        }
    }
}

/// An idle transaction elsewhere keeps every dead row version. Settled events must still cost a reader
/// nothing.
#[tokio::test]
async fn settled_events_cost_a_reader_nothing_under_a_held_snapshot() {
    let Some(place) = place().await else { return };
    let mut holder = place.pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read")
        .execute(&mut *holder)
        .await
        .unwrap();
    sqlx::query("select 1").execute(&mut *holder).await.unwrap();
    fill(&place, 20_000).await;
    let mut reader = place.reader();
    let read = drain(&mut reader, page(1_000)).await;
    for batch in read.chunks(1_000) {
        let settlement = Settlement {
            published: batch.iter().map(|e| e.seq).collect(),
            ..Settlement::default()
        };
        place.store.settle(&place.held, &settlement).await.unwrap();
    }
    let mut connection = PgConnection::connect(&place.url).await.unwrap();
    let follow = include_str!("../../../src/store/postgres/sql/discover/follow.sql");
    let follow = pillarbox::table::Tables::default().render(&complete(follow));
    run(&mut connection, PLANS.to_owned()).await;
    run(&mut connection, format!("prepare follow as {follow}")).await;
    let xmax = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let xmax = place.number(xmax).await;
    place.commit(&["a"]).await;
    let arguments = format!("'{xmax}', '{{}}', {}, 1000, 2001, 1048576, 33554432", lanes());
    // The first run also loads the caches of the session.
    for warm in [false, true] {
        let explain = format!("explain (analyze, buffers, costs off) execute follow({arguments})");
        let rows = run(&mut connection, explain).await;
        let plan: Vec<String> = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
        // The first line about buffers belongs to the whole statement: "Buffers: shared hit=12 read=1".
        let whole = plan.iter().find(|line| line.contains("Buffers: shared")).unwrap();
        let blocks: u64 = whole
            .split(['=', ' '])
            .filter_map(|word| word.parse::<u64>().ok())
            .sum();
        assert!(
            !warm || (1..40).contains(&blocks),
            "{blocks} blocks:\n{}",
            plan.join("\n")
        );
    }
    assert_eq!(drain(&mut reader, page(1_000)).await.len(), 1);
    holder.rollback().await.unwrap();
}
