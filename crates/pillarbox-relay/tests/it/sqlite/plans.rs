//! The plans of the statements that run all the time: each is served by the index its file names.

use pillarbox::table::Tables;
use pillarbox_relay::store::sqlite::complete;

use super::harness::SqliteHarness;

async fn plan(harness: &SqliteHarness, sql: &str) -> String {
    let sql = Tables::default().render(&complete(sql));
    let sql = format!("explain query plan {sql}");
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
            include_str!("../../../src/store/sqlite/sql/park/due.sql"),
            "USING INDEX outbox_events_parked_due (due_at>? AND due_at<?)",
        ),
        (
            "next_due",
            include_str!("../../../src/store/sqlite/sql/park/next.sql"),
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
        // Lists given as JSON and steps of the statement itself are as long as the page, whatever lies in the tables.
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
        (
            "dead_choose",
            include_str!("../../../src/store/sqlite/sql/dead/choose.sql"),
            "outbox_events_dead_open",
        ),
        (
            "dead_discard",
            include_str!("../../../src/store/sqlite/sql/dead/discard.sql"),
            "outbox_events_dead_open",
        ),
        (
            "dead_groups",
            include_str!("../../../src/store/sqlite/sql/dead/groups.sql"),
            "outbox_events_dead_open",
        ),
        (
            "dead_touched",
            include_str!("../../../src/store/sqlite/sql/dead/touched.sql"),
            "outbox_events_dead_open",
        ),
        (
            "status",
            include_str!("../../../src/store/sqlite/sql/admin/status.sql"),
            "outbox_events_dead_open",
        ),
        (
            "dead_show",
            include_str!("../../../src/store/sqlite/sql/dead/show.sql"),
            "outbox_events_dead_id (id=?)",
        ),
        (
            "dead_recoveries",
            include_str!("../../../src/store/sqlite/sql/dead/recoveries.sql"),
            "outbox_events_recoveries_seq (seq=?)",
        ),
        (
            "dead_expire",
            include_str!("../../../src/store/sqlite/sql/dead/expire.sql"),
            "outbox_events_dead_died (died_at<?)",
        ),
        (
            "notice_open",
            include_str!("../../../src/store/sqlite/sql/notices/open.sql"),
            "outbox_events_dead_open",
        ),
        (
            "notice_since",
            include_str!("../../../src/store/sqlite/sql/notices/since.sql"),
            "outbox_events_dead_died (died_at>?)",
        ),
        (
            "notice_outcome",
            include_str!("../../../src/store/sqlite/sql/notices/outcome.sql"),
            "outbox_events_dead_died (died_at>?)",
        ),
        (
            "reprocess_candidates",
            include_str!("../../../src/store/sqlite/sql/reprocess/candidates.sql"),
            "outbox_events_dead_open",
        ),
        (
            "dead_forget",
            include_str!("../../../src/store/sqlite/sql/dead/forget.sql"),
            "outbox_events_recoveries_seq (seq=?)",
        ),
    ] {
        let plan = plan(&harness, sql).await;
        assert!(plan.contains(index), "{name} is not served by {index}:\n{plan}");
    }
}
