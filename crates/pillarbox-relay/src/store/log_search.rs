//! Searches an event log by its positions. Its times need no index, because entries are written in the order of their
//! times.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{StoreError, StoreErrorKind};
use crate::event_log::{COUNTED_MAX, EventLog, LogBounds, LogEntry, LogFilter, LogList, Position};

/// A list without an indexed condition searches this many positions at once, and gives up after some searches.
const SEARCHED: Position = 50_000;
const SEARCHES_MAX: usize = 10;
/// Entries are written in the order of their times, except for the moments between reading the clock and taking a
/// position.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// Some positions of a log: after `first` and before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: Position,
    pub(super) end: Position,
}

/// The latest entries of a span that match.
pub(super) struct Found {
    /// The latest first. A topic pattern may only narrow them.
    pub(super) entries: Vec<LogEntry>,
    /// There may be more below the last of them. They can be fewer than asked for, to limit memory.
    pub(super) more: bool,
}

#[async_trait]
pub(super) trait SearchedLog: EventLog {
    /// The first row at or after a position, and its time.
    async fn row_from(&self, position: Position) -> Result<Option<(Position, Timestamp)>, StoreError>;

    async fn latest(&self, filter: &LogFilter, span: Span, count: usize) -> Result<Found, StoreError>;
}

/// [`EventLog::list`]
pub(super) async fn list(
    log: &impl SearchedLog,
    filter: &LogFilter,
    before: Option<Position>,
    count: usize,
) -> Result<LogList, StoreError> {
    let Span { first, mut end } = span(log, filter).await?;
    end = before.map_or(end, |before| before.min(end));
    let mut list = LogList::default();
    for _ in 0..SEARCHES_MAX {
        if end <= first + 1 {
            return Ok(list);
        }
        let from = if has_index(filter) {
            first
        } else {
            first.max(end - SEARCHED)
        };
        let wanted = count - list.entries.len();
        let found = log.latest(filter, Span { first: from, end }, wanted).await?;
        end = match found.entries.last() {
            Some(last) if found.more => last.position,
            _ => from + 1,
        };
        let ended_early = found.more && found.entries.len() < wanted;
        let matching = found
            .entries
            .into_iter()
            .filter(|entry| filter.matches_topic(&entry.event.topic));
        list.entries.extend(matching);
        if list.entries.len() >= count || ended_early {
            break;
        }
    }
    list.next = (end > first + 1).then_some(end);
    Ok(list)
}

/// The positions that [`EventLog::counts`] reads.
pub(super) async fn counted(log: &impl SearchedLog, filter: &LogFilter) -> Result<Span, StoreError> {
    let span = span(log, filter).await?;
    let entries = span.end - span.first;
    if entries > COUNTED_MAX {
        return Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "there are {entries} entries in this time, and at most {COUNTED_MAX} can be counted: choose a shorter time"
            ),
        ));
    }
    Ok(span)
}

/// The positions that the filter's time can contain.
async fn span(log: &impl SearchedLog, filter: &LogFilter) -> Result<Span, StoreError> {
    let bounds = log.bounds().await?;
    let mut span = Span {
        first: bounds.expired,
        end: bounds.last + 1,
    };
    if let Some(since) = filter.since {
        let since = since.checked_sub(CLOCK_SLACK).unwrap_or(Timestamp::MIN);
        span.first = first_at(log, since, bounds).await? - 1;
    }
    if let Some(until) = filter.until {
        let until = until.checked_add(CLOCK_SLACK).unwrap_or(Timestamp::MAX);
        span.end = first_at(log, until, bounds).await?;
    }
    Ok(Span {
        first: span.first.max(bounds.expired),
        end: span.end.min(bounds.last + 1),
    })
}

/// The first position at or after a time, by halving.
async fn first_at(
    log: &impl SearchedLog,
    time: Timestamp,
    bounds: LogBounds,
) -> Result<Position, StoreError> {
    let (mut low, mut high) = (bounds.expired + 1, bounds.last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match log.row_from(middle).await? {
            Some((position, at)) if at < time => low = position + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// Whether an index leads to the entries that match.
fn has_index(filter: &LogFilter) -> bool {
    let ids = [
        &filter.aggregate_id,
        &filter.project_id,
        &filter.user_id,
        &filter.correlation_id,
    ];
    ids.into_iter().any(Option::is_some)
}
