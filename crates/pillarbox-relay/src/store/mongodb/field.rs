//! Reads fields of our own documents leniently: a person may have changed them, and an unreadable field must stop
//! nothing.

use jiff::Timestamp;
use mongodb::bson::{Bson, Document};
use pillarbox::EventId;

use super::document;
use crate::event::{Lane, Seq};

/// Empty if it is missing.
pub(super) fn text(document: &Document, name: &str) -> String {
    optional_text(document, name).unwrap_or_default()
}

pub(super) fn optional_text(document: &Document, name: &str) -> Option<String> {
    document.get_str(name).ok().map(str::to_owned)
}

/// 0 if it is missing. The server counts in 32 bits while they are enough.
pub(super) fn number(document: &Document, name: &str) -> i64 {
    match document.get(name) {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        // Saturates: our numbers are far smaller.
        Some(Bson::Double(number)) => *number as i64,
        _ => 0,
    }
}

pub(super) fn count(document: &Document, name: &str) -> u64 {
    u64::try_from(number(document, name)).unwrap_or(0)
}

/// `None` if it is missing or not a number.
pub(super) fn optional_count(document: &Document, name: &str) -> Option<u64> {
    matches!(
        document.get(name)?,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_)
    )
    .then(|| count(document, name))
}

pub(super) fn id(document: &Document, name: &str) -> Option<EventId> {
    Some(document.get_str(name).ok()?.into())
}

/// 0 if it is missing.
pub(super) fn seq(found: &Document, name: &str) -> Seq {
    found.get_timestamp(name).map_or(0, document::seq)
}

pub(super) fn lane(document: &Document) -> Lane {
    Lane::try_from(number(document, "lane")).unwrap_or_default()
}

pub(super) fn optional_time(document: &Document, name: &str) -> Option<Timestamp> {
    let time = document.get_datetime(name).ok()?;
    Timestamp::from_millisecond(time.timestamp_millis()).ok()
}

pub(super) fn time(document: &Document, name: &str) -> Timestamp {
    optional_time(document, name).unwrap_or(Timestamp::UNIX_EPOCH)
}
