//! Every statement, from the file of its name, with the tables' names in it.

use pillarbox::table::Tables;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

macro_rules! statements {
    ($($name:ident),+ $(,)?) => {
        pub(super) struct Statements { $(pub(super) $name: SqlStr),+ }

        impl Statements {
            pub(super) fn new(tables: &Tables) -> Self {
                // Safe: `render` puts in only names it has checked and quoted.
                Self {
                    $($name: AssertSqlSafe(tables.render(include_str!(concat!(stringify!($name), ".sql")))).into_sql_str()),+
                }
            }
        }
    };
}

statements![
    blocked,
    bury,
    bury_relays,
    census,
    die,
    due,
    fail,
    fence,
    free,
    head_due,
    head_waits,
    heartbeat,
    leave,
    leave_lanes,
    next_due,
    page,
    park,
    publish,
    put_aside,
    recent,
    relays,
    release,
    renew,
    schema,
    status,
    take,
    top,
    unpark,
    version,
];
