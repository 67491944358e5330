//! The plans of the statements that run often: each uses the index that its file names.

use pillarbox::table::Tables;
use pillarbox_relay::store::{
    sql::{self, Dialect},
    sqlite::complete,
};

use super::harness::SqliteHarness;

/// A statement about dead letters, shared by both SQL databases.
macro_rules! shared {
    ($file:literal) => {
        include_str!(concat!("../../../src/store/sql/dead/", $file, ".sql"))
    };
}

async fn plan(harness: &SqliteHarness, sql: &str) -> String {
    let sql = Tables::default().render(&complete(sql));
    // The store binds the time behind the other parameters.
    let sql = format!("explain query plan {}", sql.replace("$now", "$9"));
    let rows: Vec<(i64, i64, i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .fetch_all(&harness.application)
        .await
        .unwrap();
    rows.into_iter().map(|row| row.3 + "\n").collect()
}

#[tokio::test]
async fn no_hot_statement_scans_a_table_that_grows() {
    let harness = SqliteHarness::new().await;
    for (name, sql, index) in [
        (
            "page",
            include_str!("../../../src/store/sqlite/sql/discover/page.sql"),
            "USING INTEGER PRIMARY KEY (rowid>?)",
        ),
        (
            "publish",
            include_str!("../../../src/store/sqlite/sql/settle/published.sql"),
            "USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "park",
            include_str!("../../../src/store/sqlite/sql/settle/parked.sql"),
            "USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "bury",
            include_str!("../../../src/store/sqlite/sql/settle/bury.sql"),
            "USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "due",
            include_str!("../../../src/store/sqlite/sql/due/events.sql"),
            "USING INDEX outbox_events_parked_due (due_at>? AND due_at<?)",
        ),
        (
            "next_due",
            include_str!("../../../src/store/sqlite/sql/due/next.sql"),
            "outbox_events_parked_due (due_at>?)",
        ),
        (
            "head_waits",
            include_str!("../../../src/store/sqlite/sql/settle/head_waits.sql"),
            "outbox_events_parked_head (lane=? AND key=?",
        ),
        (
            "head_due",
            include_str!("../../../src/store/sqlite/sql/settle/head_due.sql"),
            "outbox_events_parked_key (lane=? AND key=?",
        ),
        (
            "free",
            include_str!("../../../src/store/sqlite/sql/settle/free.sql"),
            "outbox_events_parked_key (lane=? AND key=?",
        ),
    ] {
        let plan = plan(&harness, sql).await;
        assert!(plan.contains(index), "{name} is not served by {index}:\n{plan}");
        // Lists given as JSON and steps of the statement itself are as long as the page, whatever the size of
        // the tables.
        let steps = ["candidate", "ready", "r", "member", "m", "sized", "s"];
        for line in plan.lines().filter_map(|line| line.strip_prefix("SCAN ")) {
            let scanned = line.split(' ').next().unwrap();
            let short =
                line.contains("VIRTUAL TABLE") || line.contains("subquery") || steps.contains(&scanned);
            assert!(short, "{name} scans {scanned}:\n{plan}");
        }
    }
}

#[tokio::test]
async fn looking_at_dead_letters_does_not_depend_on_how_many_are_done_with() {
    let harness = SqliteHarness::new().await;
    for (name, sql, index) in [
        ("choose", shared!("choose"), "outbox_events_dead_open"),
        ("groups", shared!("groups"), "outbox_events_dead_open"),
        ("touched", shared!("touched"), "outbox_events_dead_open"),
        (
            "status",
            include_str!("../../../src/store/sqlite/sql/admin/status.sql"),
            "outbox_events_dead_open",
        ),
        ("show", shared!("show"), "outbox_events_dead_id (id=?)"),
        (
            "recoveries",
            shared!("recoveries"),
            "outbox_events_recoveries_seq (seq=?)",
        ),
        (
            "expired",
            shared!("expired"),
            "outbox_events_dead_died (died_at<?)",
        ),
        ("causes", shared!("causes"), "outbox_events_dead_open"),
        (
            "outcome",
            shared!("outcome"),
            "outbox_events_dead_died (died_at>?)",
        ),
        ("replayable", shared!("replayable"), "outbox_events_dead_open"),
        (
            "forget",
            shared!("forget"),
            "outbox_events_recoveries_seq (seq=?)",
        ),
    ] {
        let sql = sql::complete(Dialect::Sqlite, sql);
        let plan = plan(&harness, &sql).await;
        assert!(plan.contains(index), "{name} is not served by {index}:\n{plan}");
    }
}
