//! Turns a row into an event, or into the reason why it is unreadable.

use jiff::Timestamp;
use pillarbox::{Event, Limits};
use sqlx::{Row, sqlite::SqliteRow};

use crate::{
    event::{Lane, StoredEvent, Unreadable},
    store::{PageLimit, headers, limits},
};

/// The column of `discover/page.sql` and `due/events.sql` with the number of rows before the limit on bytes.
pub(super) const CANDIDATES: usize = 23;
/// The column of `due/events.sql` that says whether the event was delayed.
pub(super) const DELAYED: usize = 24;
/// The column of `due/events.sql` that says whether more keys are due. The place of this row's key follows it.
pub(super) const MORE: usize = 25;

/// The column of `admin/recent.sql` with the status.
pub(super) const STATUS: usize = 23;

/// Reads the columns as `discover/page.sql` and `due/events.sql` list them. The outer error is about the database,
/// the inner one about the row.
pub(super) fn event(
    row: &SqliteRow,
    limit: PageLimit,
) -> Result<Result<StoredEvent, Unreadable>, sqlx::Error> {
    let seq = row.try_get(0)?;
    let lane = row.try_get::<Lane, _>(1)?;
    Ok(read(row, seq, lane, limit).map_err(|problem| Unreadable {
        seq,
        lane,
        problem,
        topic: get(row, 3, "topic").ok().flatten(),
        key: key(row).ok(),
    }))
}

fn read(row: &SqliteRow, seq: i64, lane: Lane, limit: PageLimit) -> Result<StoredEvent, String> {
    let limits = Limits::default().payload_bytes_max(limit.payload_bytes_max);
    // If a text was too large to be fetched, the column contains its size instead.
    let size = |column| {
        row.try_get::<i64, _>(column)
            .ok()
            .and_then(|size| usize::try_from(size).ok())
    };
    limits::fetched(size(5).unwrap_or(0), size(20).unwrap_or(0))?;
    let created_at = time(get(row, 13, "created_at")?, "created_at")?;
    let mut event = Event::to(text(row, 3, "topic")?)
        .id(text(row, 2, "id")?)
        .event_type(text(row, 5, "event_type")?)
        .aggregate(text(row, 7, "aggregate_type")?, text(row, 8, "aggregate_id")?);
    event.stream = get(row, 4, "stream")?;
    event.schema_version = get(row, 6, "schema_version")?;
    event.aggregate_version = get(row, 9, "aggregate_version")?;
    event.partition_key = get(row, 10, "partition_key")?;
    event.payload = payload(row, &limits)?.into();
    event.headers = headers::read(text(row, 20, "headers")?.as_bytes())?;
    event.project_id = get(row, 11, "project_id")?;
    event.user_id = get(row, 12, "user_id")?;
    event.available_at = get::<Option<i64>>(row, 14, "available_at")?
        .map(|at| time(at, "available_at"))
        .transpose()?;
    event.retry.max_attempts = get(row, 16, "max_attempts")?;
    event.retry.base_delay_ms = get(row, 17, "base_delay_ms")?;
    event.retry.max_delay_ms = get(row, 18, "max_delay_ms")?;
    event.retry.backoff_multiplier = get(row, 19, "backoff_multiplier")?;
    limits
        .check(&event, created_at)
        .map_err(|problem| problem.to_string())?;
    Ok(StoredEvent {
        seq,
        lane,
        attempts: get(row, 15, "attempts")?,
        created_at,
        event,
    })
}

fn key(row: &SqliteRow) -> Result<String, String> {
    match get(row, 10, "partition_key")? {
        Some(key) => Ok(key),
        None => {
            get::<Option<String>>(row, 8, "aggregate_id")?.ok_or_else(|| "the key was not read".to_owned())
        }
    }
}

fn payload(row: &SqliteRow, allowed: &Limits) -> Result<Vec<u8>, String> {
    if let Some(payload) = get(row, 21, "payload")? {
        return Ok(payload);
    }
    let bytes: i64 = get(row, 22, "payload")?;
    let bytes = usize::try_from(bytes).unwrap_or_default();
    Err(limits::payload_too_large(bytes, allowed.payload_bytes_max))
}

fn time(micros: i64, column: &str) -> Result<Timestamp, String> {
    Timestamp::from_microsecond(micros).map_err(|e| format!("{column} is not a time: {e}"))
}

fn text<'r>(row: &'r SqliteRow, index: usize, column: &str) -> Result<&'r str, String> {
    get(row, index, column)
}

fn get<'r, T>(row: &'r SqliteRow, index: usize, column: &str) -> Result<T, String>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(index)
        .map_err(|error| format!("{column} can't be read: {error}"))
}
