//! Every statement, from the file of its name, with the tables' names in it.

use pillarbox::table::Tables;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::store::limits;

/// Which dead letters, for the statements that ask for it.
const FILTER: &str = include_str!("sql/dead/filter.sql");

/// Puts in what statements share.
pub fn complete(sql: &str) -> String {
    sql.replace("{filter}", FILTER)
        .replace("{headers_max}", &limits::headers_fetched_max().to_string())
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
                // Safe: `render` puts in only names it has checked and quoted.
                let sql = |text: &str| AssertSqlSafe(tables.render(&complete(text))).into_sql_str();
                Self { $($field: sql(include_str!(concat!("sql/", $file, ".sql")))),+ }
            }
        }
    };
}

statements![
    admin_kinds = "admin/kinds",
    admin_low_mark = "admin/low_mark",
    admin_recent = "admin/recent",
    admin_relays = "admin/relays",
    admin_status = "admin/status",
    assumptions_look = "assumptions/look",
    assumptions_reset = "assumptions/reset",
    dead_choose = "dead/choose",
    dead_copy = "dead/copy",
    dead_discard = "dead/discard",
    dead_discarded = "dead/discarded",
    dead_expire = "dead/expire",
    dead_forget = "dead/forget",
    dead_groups = "dead/groups",
    dead_list = "dead/list",
    dead_park = "dead/park",
    dead_recoveries = "dead/recoveries",
    dead_replayed = "dead/replayed",
    dead_revive = "dead/revive",
    dead_show = "dead/show",
    dead_touched = "dead/touched",
    dead_unblock = "dead/unblock",
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
    notices_claim = "notices/claim",
    notices_delivered = "notices/delivered",
    notices_failed = "notices/failed",
    notices_forget = "notices/forget",
    notices_forget_sends = "notices/forget_sends",
    notices_next = "notices/next",
    notices_open = "notices/open",
    notices_outcome = "notices/outcome",
    notices_send = "notices/send",
    notices_since = "notices/since",
    notices_tell = "notices/tell",
    notices_told = "notices/told",
    notices_troubles = "notices/troubles",
    park_blocked_keys = "park/blocked_keys",
    park_due = "park/due",
    park_next = "park/next",
    pressure_clear = "pressure/clear",
    pressure_count = "pressure/count",
    pressure_glance = "pressure/glance",
    pressure_note = "pressure/note",
    pressure_set = "pressure/set",
    pressure_standing = "pressure/standing",
    reprocess_candidates = "reprocess/candidates",
    reprocess_claim = "reprocess/claim",
    reprocess_last = "reprocess/last",
    schema_add_troubles = "schema/add_troubles",
    schema_create = "schema/create",
    schema_from_2 = "schema/from_2",
    schema_has_troubles = "schema/has_troubles",
    schema_version = "schema/version",
    settle_keep_dead = "settle/keep_dead",
    settle_bury = "settle/bury",
    settle_dead = "settle/dead",
    settle_dead_told = "settle/dead_told",
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
    versions_dead = "versions/dead",
    versions_index = "versions/index",
    versions_indexed = "versions/indexed",
    versions_latest = "versions/latest",
    versions_unique_index = "versions/unique_index",
];
