//! Every statement, from the file of its name, with the tables' names filled in.

use pillarbox::table::Tables;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::store::limits;

/// Fills in the parts that statements share: `{sizes}` of the event `e`, and `{columns ?5}`, the event's columns
/// where `s` says that they are small enough, with a payload of up to `?5` bytes.
pub fn complete(sql: &str) -> String {
    let mut sql = sql.replace("{sizes}", include_str!("sql/row/sizes.sql"));
    for number in 1..=9 {
        let columns = include_str!("sql/row/columns.sql").replace("{payload_max}", &format!("?{number}"));
        sql = sql.replace(&format!("{{columns ?{number}}}"), &columns);
    }
    sql.replace("{headers_max}", &limits::headers_fetched_max().to_string())
        .replace("{names_max}", &limits::names_fetched_max().to_string())
        .replace(
            "{name_max}",
            &pillarbox::Limits::default().name_bytes_max.to_string(),
        )
}

macro_rules! statements {
    ($($field:ident = $file:literal),+ $(,)?) => {
        pub(super) struct Statements { $(pub(super) $field: SqlStr),+ }

        impl Statements {
            pub(super) fn new(tables: &Tables) -> Self {
                // Safe: `render` inserts only names that it has checked and quoted.
                let sql = |text: &str| AssertSqlSafe(tables.render(&complete(text))).into_sql_str();
                Self { $($field: sql(include_str!(concat!("sql/", $file, ".sql")))),+ }
            }
        }
    };
}

statements![
    admin_recent = "admin/recent",
    assumptions_forget_log = "assumptions/forget_log",
    assumptions_leap_log = "assumptions/leap_log",
    assumptions_log_ended = "assumptions/log_ended",
    assumptions_look = "assumptions/look",
    assumptions_raise_log = "assumptions/raise_log",
    assumptions_reset = "assumptions/reset",
    dead_copy = "dead/copy",
    dead_event = "dead/event",
    discover_page = "discover/page",
    discover_top = "discover/top",
    lanes_bury_relays = "lanes/bury_relays",
    lanes_census = "lanes/census",
    lanes_heartbeat = "lanes/heartbeat",
    lanes_leave = "lanes/leave",
    lanes_leave_lanes = "lanes/leave_lanes",
    lanes_release = "lanes/release",
    lanes_renew = "lanes/renew",
    lanes_report = "lanes/report",
    lanes_take = "lanes/take",
    due_blocked_keys = "due/blocked_keys",
    due_events = "due/events",
    due_next = "due/next",
    pressure_clear = "pressure/clear",
    pressure_set = "pressure/set",
    schema_add_troubles = "schema/add_troubles",
    schema_create = "schema/create",
    schema_from_2 = "schema/from_2",
    schema_has_troubles = "schema/has_troubles",
    schema_version = "schema/version",
    settle_keep_dead = "settle/keep_dead",
    settle_bury = "settle/bury",
    settle_dead = "settle/dead",
    settle_dead_told = "settle/dead_told",
    settle_discarded = "settle/discarded",
    settle_failed = "settle/failed",
    settle_fence = "settle/fence",
    settle_free = "settle/free",
    settle_head_due = "settle/head_due",
    settle_head_waits = "settle/head_waits",
    settle_parked = "settle/parked",
    settle_published = "settle/published",
    settle_put_aside = "settle/put_aside",
    settle_superseded = "settle/superseded",
    settle_unparked = "settle/unparked",
    versions_index = "versions/index",
    versions_indexed = "versions/indexed",
    versions_latest = "versions/latest",
    versions_unique_index = "versions/unique_index",
];
