//! Reads rows of the event log.

use pillarbox::Event;

use super::super::SqlRow;
use crate::{
    event::Seq,
    event_log::{LifeRow, LogEntry, LogOutcome, Position, Stretch},
    settlement::DeadReason,
    store::headers,
};

/// A void row stands for one position, or for many: then it has the first of them as its seq.
pub(super) fn void(position: Position, seq: Seq) -> Stretch {
    let first = if seq > 0 { seq } else { position };
    Stretch {
        first,
        last: position,
    }
}

/// The number of columns of an entry.
pub(super) const AFTER_ENTRY: usize = 24;

/// From the columns of `event_log/entry.sql`.
pub(super) fn entry(row: &impl SqlRow) -> Result<LogEntry, sqlx::Error> {
    let outcome = match row.text(1)?.as_str() {
        "dead" => LogOutcome::Dead {
            reason: DeadReason::from_stored(&row.text(17)?),
            error: row.text(18)?,
        },
        _ => LogOutcome::Published,
    };
    let narrow = |wide: i64| i32::try_from(wide).unwrap_or(i32::MAX);
    let mut event = Event::to(row.text(5)?)
        .id(row.id(4)?)
        .event_type(row.text(7)?)
        .aggregate(row.text(9)?, row.text(10)?);
    event.stream = row.optional_text(6)?;
    event.schema_version = narrow(row.optional_integer(8)?.unwrap_or(1));
    event.aggregate_version = row.optional_integer(11)?;
    event.partition_key = row.optional_text(12)?;
    event.project_id = row.optional_text(13)?;
    event.user_id = row.optional_text(14)?;
    let stored = row.optional_text(19)?.unwrap_or_default();
    event.headers = headers::read(stored.as_bytes()).unwrap_or_default();
    if let Some(payload) = row.optional_text(20)? {
        event.payload = payload.into();
    }
    Ok(LogEntry {
        position: row.integer(0)?,
        at: row.time(2)?,
        outcome,
        seq: row.integer(3)?,
        created_at: row.time(15)?,
        attempts: u32::try_from(row.integer(16)?).unwrap_or_default(),
        failures: serde_json::from_str(&row.text(21)?).unwrap_or_default(),
        sink: row.optional_text(22)?,
        relay: row.optional_text(23)?.filter(|relay| !relay.is_empty()),
        event,
    })
}

/// From the columns of `event_log/row.sql`.
pub(super) fn life_row(row: &impl SqlRow) -> Result<LifeRow, sqlx::Error> {
    let failures = row.optional_text(9)?.unwrap_or_default();
    Ok(LifeRow {
        seq: row.integer(0)?,
        status: row.text(1)?,
        created_at: row.time(2)?,
        attempts: u32::try_from(row.integer(3)?).unwrap_or_default(),
        first_attempt_at: row.optional_time(4)?,
        last_attempt_at: row.optional_time(5)?,
        published_at: row.optional_time(6)?,
        last_error: row.optional_text(7)?,
        due_at: row.optional_time(8)?,
        failures: serde_json::from_str(&failures).unwrap_or_default(),
        event: None,
    })
}
