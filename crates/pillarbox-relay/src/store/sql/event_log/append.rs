//! Appends entries, in the transaction of a settlement.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{super::SqlDatabase, statement, with_parts};
use crate::{event::Seq, settlement::Settlement, store::StoreError};

/// Appends what a settlement has just written, in its transaction. `failures` are those of events that have left the side
/// table, as JSON.
pub(in crate::store) async fn append<D: SqlDatabase>(
    database: &D,
    tx: &mut D::Tx,
    settlement: &Settlement,
    failures: &HashMap<Seq, Box<RawValue>>,
) -> Result<(), StoreError> {
    if !settlement.logged.is_empty() {
        let told: Vec<Told> = settlement
            .logged_with_sinks()
            .map(|(seq, sink)| Told {
                seq,
                sink,
                failures: failures.get(&seq).map(|failures| &**failures),
            })
            .collect();
        let told = serde_json::to_string(&told).unwrap_or_default();
        let sql = include_str!("append_published.sql");
        let sql = statement(
            database,
            &with_delivery(sql, "g.failures, g.sink, cast($2 as text)"),
        );
        let relay = settlement.logged_by.relay();
        database
            .execute_in(tx, sql, arguments!(told.as_str(), relay))
            .await?;
    }
    let dead: Vec<Seq> = settlement.logged_dead().collect();
    if !dead.is_empty() {
        let sql = statement(database, include_str!("append_dead.sql"));
        database.execute_in(tx, sql, arguments!(&*dead)).await?;
    }
    Ok(())
}

/// A row of `{told}`.
#[derive(Serialize)]
struct Told<'a> {
    seq: Seq,
    #[serde(skip_serializing_if = "Option::is_none")]
    sink: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<&'a RawValue>,
}

/// Failures as the side table has them. `None`: there are none.
pub(in crate::store) fn some_failures(stored: Option<String>) -> Option<Box<RawValue>> {
    let stored = stored.filter(|stored| stored != "[]")?;
    RawValue::from_string(stored).ok()
}

/// Fills in the columns of `event_log/published.sql` that say how the event was delivered: failures, sink, relay.
pub(in crate::store) fn with_delivery(sql: &str, delivery: &str) -> String {
    with_parts(sql).replace("{delivery}", delivery)
}
