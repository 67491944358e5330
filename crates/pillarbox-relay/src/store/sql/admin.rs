//! Administration, for both SQL databases. Each has its own queries; their answers are read here.

use std::time::Duration;

use super::{SqlDatabase, SqlRow, one_row};
use crate::{
    catalog::{EXAMPLE_BYTES_MAX, KINDS_MAX, Kind, Look},
    event::Seq,
    settlement::DeadReason,
    store::{
        Sample, StoreError,
        admin::{AdminEnqueueError, RelayStatus, StoreStatus},
        sample::{SAMPLE_ROWS_MAX, Updates},
        trouble,
    },
};

/// The lowest low mark: one row with one number.
pub(in crate::store) async fn low_mark(database: &impl SqlDatabase, sql: &str) -> Result<Seq, StoreError> {
    let rows = database.query(database.statement(sql), arguments!()).await?;
    one_row(database, &rows, |row| row.integer(0))
}

/// From one row of counts (pending, failed, held, delayed, dead, the age of the oldest in microseconds, lanes held)
/// and one row for each relay (id, name, microseconds since its heartbeat, lanes, troubles). Without the
/// backpressure.
pub(in crate::store) async fn status(
    database: &impl SqlDatabase,
    counts: &str,
    relays: &str,
) -> Result<StoreStatus, StoreError> {
    let counts = database.query(database.statement(counts), arguments!()).await?;
    let relays = database.query(database.statement(relays), arguments!()).await?;
    let relays = database.read_rows(&relays, |row| {
        Ok(RelayStatus {
            id: row.text(0)?.parse().unwrap_or_default(),
            name: row.text(1)?,
            last_seen: row.optional_duration(2)?.unwrap_or_default(),
            lanes: u16::try_from(row.count(3)?).unwrap_or(u16::MAX),
            troubles: trouble::from_json(&row.text(4)?),
        })
    })?;
    one_row(database, &counts, |row| {
        Ok(StoreStatus {
            pending: row.count(0)?,
            failed: row.count(1)?,
            held: row.count(2)?,
            delayed: row.count(3)?,
            dead: row.count(4)?,
            oldest_age: row.optional_duration(5)?,
            lanes_held: u16::try_from(row.count(6)?).unwrap_or(u16::MAX),
            relays,
            pressure: Vec::new(),
        })
    })
}

/// From rows of a name and a number. A number that is null is unknown. `sql` takes the limit of rows.
pub(in crate::store) async fn sample(database: &impl SqlDatabase, sql: &str) -> Result<Sample, StoreError> {
    let rows = database
        .query(database.statement(sql), arguments!(SAMPLE_ROWS_MAX))
        .await?;
    let figures = database.read_rows(&rows, |row| Ok((row.text(0)?, row.optional_count(1)?)))?;
    let mut sample = Sample::default();
    let mut updates = Updates::default();
    for (name, figure) in figures {
        let count = figure.unwrap_or_default();
        let small = u16::try_from(count).unwrap_or(u16::MAX);
        match name.as_str() {
            "pending" => sample.pending += count,
            "not_counted" => {
                sample.pending += count;
                sample.pending_estimated = count > 0;
            }
            "failed" => sample.failed = count,
            "held" => sample.held = count,
            "delayed" => sample.delayed = count,
            "keys_held" => sample.keys_held = count,
            "oldest_age" => sample.oldest_age = figure.map(Duration::from_micros),
            "lanes_without_owner" => sample.lanes_without_owner = small,
            "relays" => sample.relays = small,
            "rows" => sample.rows = figure,
            "table_bytes" => sample.table_bytes = figure,
            "index_bytes" => sample.index_bytes = figure,
            "updates" => updates.all = count,
            "hot_updates" => {
                updates.hot = count;
                sample.updates = Some(updates);
            }
            other => {
                if let Some(reason) = other.strip_prefix("dead ") {
                    *sample.dead.entry(DeadReason::from_stored(reason)).or_default() += count;
                }
            }
        }
    }
    Ok(sample)
}

/// From a row for each kind. The first two columns are the same in all rows: the number of events, and the time of
/// the oldest. Any column may be null: other programs write events, too.
pub(in crate::store) async fn kinds(
    database: &impl SqlDatabase,
    sql: &str,
    last: usize,
) -> Result<Look, StoreError> {
    let arguments = arguments!(last, KINDS_MAX, EXAMPLE_BYTES_MAX);
    let rows = database.query(database.statement(sql), arguments).await?;
    let mut look = Look::default();
    look.kinds = database.read_rows(&rows, |row| {
        (look.events, look.since) = (row.count(0)?, Some(row.time(1)?));
        Ok(Kind {
            event_type: row.text(2)?,
            schema_version: i32::try_from(row.integer(3)?).unwrap_or_default(),
            topic: row.text(4)?,
            stream: row.optional_text(5)?,
            count: row.count(6)?,
            last_seen: row.time(7)?,
            aggregate_type: row.text(8)?,
            payload: row.optional_text(9)?.map(Into::into),
        })
    })?;
    Ok(look)
}

/// The store explains an outage; other errors are about the event.
pub(in crate::store) fn enqueue_error(
    database: &impl SqlDatabase,
    error: pillarbox::EnqueueError,
) -> AdminEnqueueError {
    use pillarbox::EnqueueError::Database;
    match error {
        Database(error) => match error.downcast::<sqlx::Error>() {
            Ok(error) => AdminEnqueueError::Store(database.row_error(*error)),
            Err(error) => AdminEnqueueError::Refused(Database(error)),
        },
        error => AdminEnqueueError::Refused(error),
    }
}
