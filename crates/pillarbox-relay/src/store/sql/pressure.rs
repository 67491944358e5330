//! Backpressure, for both SQL databases. Each has its own queries for the figures; they are read and written here.

use std::time::Duration;

use pillarbox::pressure::Limit;

use super::{SqlDatabase, SqlRow, one_row};
use crate::{
    event::Seq,
    pressure::{Figures, Glance, Standing, TopicWaiting, Waiting},
    store::StoreError,
};

/// From the sequence, the lowest low mark, and the figures: the sequence when they were written, the highest of
/// them, and their age in microseconds.
pub(in crate::store) async fn glance(database: &impl SqlDatabase, sql: &str) -> Result<Glance, StoreError> {
    let rows = database.query(database.statement(sql), arguments!()).await?;
    one_row(database, &rows, |row| {
        let (at, low_mark) = (row.integer(0)?, row.integer(1)?);
        Ok(Glance {
            waiting: u64::try_from(at.saturating_sub(low_mark)).unwrap_or_default(),
            at,
            noted_at: row.integer(2)?,
            noted_pending: row.count(3)?,
            age: row.optional_duration(4)?,
        })
    })
}

/// From a row for each topic: its name, the number of events, the highest seq, and the time of the oldest. `sql`
/// takes the limit.
pub(in crate::store) async fn count(
    database: &impl SqlDatabase,
    sql: &str,
    at: Seq,
    limit: u64,
) -> Result<Waiting, StoreError> {
    let rows = database.query(database.statement(sql), arguments!(limit)).await?;
    let (mut counted, mut reached) = (0, 0);
    let topics = database.read_rows(&rows, |row| {
        let count = row.count(1)?;
        counted += count;
        reached = row.integer(2)?.max(reached);
        Ok(TopicWaiting {
            topic: row.text(0)?,
            count,
            oldest: row.optional_time(3)?,
        })
    })?;
    let behind = u64::try_from(at.saturating_sub(reached)).unwrap_or_default();
    Ok(Waiting {
        topics,
        not_counted: if counted < limit { 0 } else { behind },
    })
}

pub(in crate::store) async fn note(database: &impl SqlDatabase, figures: &Figures) -> Result<(), StoreError> {
    if figures.classes.is_empty() {
        return Ok(());
    }
    let sql = database.statement(include_str!("pressure/note.sql"));
    let mut tx = database.begin_tx().await?;
    for (place, (pending, oldest)) in figures.classes.iter().enumerate() {
        let arguments = arguments!(place, *pending, *oldest, figures.at, figures.drained);
        database.execute_in(&mut tx, sql.clone(), arguments).await?;
    }
    database.commit_tx(tx).await
}

/// The state of the classes, by the formula that producers use. From a row for each class: its name, the limits,
/// the longest delay in milliseconds, the number of pending events, the age of the oldest in microseconds, and
/// delivered events for each second, null if that is unknown.
pub(in crate::store) async fn standing(
    database: &impl SqlDatabase,
    sql: &str,
) -> Result<Vec<Standing>, StoreError> {
    let rows = database.query(database.statement(sql), arguments!()).await?;
    database.read_rows(&rows, |row| {
        let limit = Limit {
            soft: row.optional_count(1)?,
            hard: row.optional_count(2)?,
            max_delay: Duration::from_millis(row.count(3)?),
        };
        let (class, pending) = (row.text(0)?, row.count(4)?);
        let (oldest, drained) = (row.optional_duration(5)?, row.optional_real(6)?);
        Ok(limit.judge(&class, pending, oldest, drained).into())
    })
}
