//! Turns a row into an event, with no more copies than needed: this runs for every event.

use bytes::Bytes;
use jiff::Timestamp;
use pillarbox::{Event, Limits};
use sqlx::{Row, ValueRef, postgres::PgRow};

use crate::{
    event::{StoredEvent, Unreadable},
    store::{headers, limits},
};

/// Fills in what the statements share:
///
/// | placeholder | becomes |
/// | --- | --- |
/// | `{sizes}` | the sizes of an event's columns, of `e` |
/// | `{fetched z $6}` | the bytes fetched of a row of `z`, with a payload of up to `$6` bytes |
/// | `{columns $6}` | the columns of an event, of `p`, with a payload of up to `$6` bytes |
/// | `{lowest_mark}` | the lowest low mark, or 0 if the low marks are invalid |
/// | `{headers_max}`, `{names_max}`, `{name_max}` | limits on sizes |
pub fn complete(sql: &str) -> String {
    let mut sql = sql
        .replace("{sizes}", include_str!("sql/row/sizes.sql"))
        .replace("{lowest_mark}", include_str!("sql/lanes/lowest_mark.sql"));
    for number in 1..=9 {
        let columns = format!("{{columns ${number}}}");
        let fetched = format!("{{fetched z ${number}}}");
        let payload_max = format!("${number}");
        let fill = |text: &str| text.replace("{payload_max}", &payload_max).replace("{of}", "z");
        sql = sql
            .replace(&columns, &fill(include_str!("sql/row/columns.sql")))
            .replace(&fetched, &fill(include_str!("sql/row/fetched.sql")));
    }
    sql.replace("{headers_max}", &limits::headers_fetched_max().to_string())
        .replace("{names_max}", &limits::names_fetched_max().to_string())
        .replace("{name_max}", &Limits::default().name_bytes_max.to_string())
}

/// Reads the columns of an event. The first of them (`seq`) is at `first`. Statements list them in this order: seq,
/// lane, id, topic, stream, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
/// partition_key, payload (null if over the limit), its size, headers (likewise), project_id, user_id, created_at,
/// available_at, attempts, max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier, the headers' size, the
/// size of all texts (which are null if that is over the limit).
pub(super) fn event(row: &PgRow, first: usize, limits: &Limits) -> Result<StoredEvent, Unreadable> {
    let columns = Columns { row, first };
    let seq = columns.integer::<8>(0).unwrap_or_default();
    let lane = columns.integer::<2>(1).unwrap_or_default();
    // A generated column, 0 to 255.
    let lane = lane as u8;
    read(&columns, limits)
        .map(|(event, attempts, created_at)| StoredEvent {
            seq,
            lane,
            attempts,
            created_at,
            event,
        })
        .map_err(|problem| Unreadable {
            seq,
            lane,
            problem,
            topic: columns.text(3).ok().flatten(),
            key: columns.key(),
        })
}

/// The size of the payload, which may not have been fetched. In `discover/small.sql`, the size of the whole event.
pub(super) fn size(row: &PgRow, first: usize) -> usize {
    Columns { row, first }.size(12)
}

/// The number of bytes fetched of a row with these limits.
pub(super) fn fetched(row: &PgRow, first: usize, payload_bytes_max: usize) -> usize {
    let columns = Columns { row, first };
    let within = |column, most| {
        Some(columns.size(column))
            .filter(|&size| size <= most)
            .unwrap_or(0)
    };
    within(12, payload_bytes_max)
        + within(23, limits::headers_fetched_max())
        + within(24, limits::names_fetched_max())
}

fn read(columns: &Columns<'_>, limits: &Limits) -> Result<(Event, u32, Timestamp), String> {
    let size = |column| columns.size(column);
    limits::fetched(size(24), size(23))?;
    let payload = columns
        .bytes(11)
        .ok_or_else(|| limits::payload_too_large(size(12), limits.payload_bytes_max))?;
    let mut event = Event::to(columns.required(3)?)
        .id(columns.required(2)?)
        .event_type(columns.required(5)?)
        .aggregate(columns.required(7)?, columns.required(8)?);
    event.stream = columns.text(4)?;
    event.schema_version = narrow(columns.integer::<4>(6).unwrap_or(1));
    event.aggregate_version = columns.integer::<8>(9);
    event.partition_key = columns.text(10)?;
    event.payload = Bytes::copy_from_slice(payload);
    // Stored as a byte for the version of the format, then text.
    event.headers = headers::read(
        columns
            .bytes(13)
            .and_then(|stored| stored.get(1..))
            .unwrap_or_default(),
    )?;
    event.project_id = columns.text(14)?;
    event.user_id = columns.text(15)?;
    event.available_at = columns.timestamp(17);
    event.retry.max_attempts = columns.integer::<4>(19).map(narrow);
    event.retry.base_delay_ms = columns.integer::<8>(20);
    event.retry.max_delay_ms = columns.integer::<8>(21);
    event.retry.backoff_multiplier = columns.integer::<8>(22).map(|bits| f64::from_bits(bits as u64));
    let created_at = columns.timestamp(16).unwrap_or(Timestamp::UNIX_EPOCH);
    limits
        .check(&event, created_at)
        .map_err(|problem| problem.to_string())?;
    let attempts = u32::try_from(columns.integer::<4>(18).unwrap_or_default()).unwrap_or_default();
    Ok((event, attempts, created_at))
}

fn narrow(wide: i64) -> i32 {
    i32::try_from(wide).unwrap_or(i32::MAX)
}

/// The columns of one row in PostgreSQL's binary format.
struct Columns<'r> {
    row: &'r PgRow,
    first: usize,
}

impl<'r> Columns<'r> {
    fn bytes(&self, column: usize) -> Option<&'r [u8]> {
        let value = self.row.try_get_raw(self.first + column).ok()?;
        if value.is_null() {
            return None;
        }
        value.as_bytes().ok()
    }

    /// An integer of this many bytes.
    fn integer<const BYTES: usize>(&self, column: usize) -> Option<i64> {
        let bytes = <[u8; BYTES]>::try_from(self.bytes(column)?).ok()?;
        let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
        Some(
            bytes
                .iter()
                .fold(sign, |number, &byte| (number << 8) | i64::from(byte)),
        )
    }

    /// A size of four bytes, or of eight if it is a sum.
    fn size(&self, column: usize) -> usize {
        let size = self.integer::<4>(column).or_else(|| self.integer::<8>(column));
        size.and_then(|size| usize::try_from(size).ok())
            .unwrap_or_default()
    }

    fn text(&self, column: usize) -> Result<Option<String>, String> {
        self.bytes(column)
            .map(|bytes| match std::str::from_utf8(bytes) {
                Ok(text) => Ok(text.to_owned()),
                Err(_) => Err("a text is not UTF-8".to_owned()),
            })
            .transpose()
    }

    fn key(&self) -> Option<String> {
        self.text(10)
            .transpose()
            .or_else(|| self.text(8).transpose())?
            .ok()
    }

    fn required(&self, column: usize) -> Result<String, String> {
        self.text(column).map(Option::unwrap_or_default)
    }

    /// Stored as microseconds since 2000. The ends of the range are the infinities.
    fn timestamp(&self, column: usize) -> Option<Timestamp> {
        const YEAR_2000: i64 = 946_684_800_000_000;
        let stored = self.integer::<8>(column)?;
        let end = if stored < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        Some(Timestamp::from_microsecond(stored.saturating_add(YEAR_2000)).unwrap_or(end))
    }
}
