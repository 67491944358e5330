//! The function with which applications in any language write events: `pillarbox.enqueue(topic, key, event_type,
//! payload, …)`.
//!
//! For the outbox `outbox_events` it is in the schema `pillarbox` and does not name the schema of the tables: as
//! with the library, the caller's search_path finds them. For any other outbox it is in the schema of the table, as
//! `shop.outbox_enqueue` for `shop.outbox`. So several outboxes in one database never share a function.

use pillarbox::{enqueue::postgres_channel, table::Tables};

/// The function's name, quoted for SQL.
pub(super) fn name(tables: &Tables) -> String {
    named(tables, "enqueue")
}

fn named(tables: &Tables, function: &str) -> String {
    match is_default(tables) {
        true => format!("\"pillarbox\".\"{function}\""),
        false => tables.beside(function),
    }
}

fn is_default(tables: &Tables) -> bool {
    tables.name() == Tables::default().name()
}

/// The statements that create or replace the functions. If the function is in another schema than the tables, the
/// role may lack the right to create it. Then the statements do nothing.
pub(super) fn sql(tables: &Tables) -> String {
    let functions = [
        include_str!("sql/enqueue/refusal.sql"),
        include_str!("sql/enqueue/function.sql"),
    ]
    .join("\n");
    let script = match is_default(tables) {
        true => {
            with_obstacle(include_str!("sql/enqueue/schema.sql")).replace("{functions}", functions.trim_end())
        }
        false => functions,
    };
    let script = script
        .replace("{enqueue}", &name(tables))
        .replace("{refusal}", &named(tables, "refusal"))
        .replace("{channel}", &postgres_channel(tables));
    tables.render(&script)
}

/// The statement that checks whether the function exists and what prevents its creation. `None` if the function is
/// in the schema of the tables and needs no more rights than they do.
pub(super) fn state_sql(tables: &Tables) -> Option<String> {
    is_default(tables).then(|| with_obstacle(include_str!("sql/enqueue/state.sql")))
}

fn with_obstacle(sql: &str) -> String {
    sql.replace("{obstacle}", include_str!("sql/enqueue/obstacle.sql").trim_end())
}
