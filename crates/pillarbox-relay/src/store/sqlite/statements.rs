//! Every statement, from the file of its name, with the tables' names in it.

use pillarbox::table::Tables;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::store::limits;

/// Which dead letters, for the statements that ask for it.
const FILTER: &str = include_str!("dead_filter.sql");

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
    ($($name:ident),+ $(,)?) => {
        pub(super) struct Statements { $(pub(super) $name: SqlStr),+ }

        impl Statements {
            pub(super) fn new(tables: &Tables) -> Self {
                // Safe: `render` puts in only names it has checked and quoted.
                let sql = |text: &str| AssertSqlSafe(tables.render(&complete(text))).into_sql_str();
                Self { $($name: sql(include_str!(concat!(stringify!($name), ".sql")))),+ }
            }
        }
    };
}

statements![
    block,
    blocked,
    bury,
    bury_relays,
    census,
    dead_choose,
    dead_copy,
    dead_discard,
    dead_discarded,
    dead_expire,
    dead_forget,
    dead_groups,
    dead_list,
    dead_park,
    dead_recoveries,
    dead_replayed,
    dead_revive,
    dead_show,
    dead_told,
    dead_touched,
    die,
    due,
    fail,
    fence,
    free,
    head_due,
    head_waits,
    heartbeat,
    kinds,
    leave,
    leave_lanes,
    low_mark,
    next_due,
    notice_claim,
    notice_delivered,
    notice_failed,
    notice_forget,
    notice_forget_sends,
    notice_next,
    notice_open,
    notice_outcome,
    notice_send,
    notice_since,
    notice_tell,
    notice_told,
    notice_troubles,
    page,
    park,
    pressure_clear,
    pressure_count,
    pressure_glance,
    pressure_note,
    pressure_set,
    pressure_standing,
    publish,
    put_aside,
    recent,
    relays,
    relays_get_troubles,
    relays_have_troubles,
    release,
    renew,
    report,
    reprocess_candidates,
    reprocess_claim,
    reprocess_last,
    schema,
    schema_from_2,
    start_over,
    status,
    superseded,
    take,
    taken,
    top,
    unblock,
    unpark,
    version,
    versions_dead,
    versions_index,
    versions_indexed,
    versions_latest,
    versions_unique_index,
];
