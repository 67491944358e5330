//! Searches an event log by its positions. Its times need no index, because entries are written in the order of their
//! times.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use super::StoreError;
use crate::event_log::{
    COUNTING_TIME_MAX, EventLog, HourCount, LogBounds, LogCounts, LogEntry, LogFilter, LogList, Position,
};

/// A list ends early rather than have more than this in memory.
pub(super) const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A list without an indexed condition searches this many positions at once, and gives up after some searches.
const SEARCHED: Position = 50_000;
/// With an indexed condition and others: the entries that the index finds may all be unwanted.
const SEARCHED_BY_INDEX: Position = 1_000_000;
const SEARCHES_MAX: usize = 10;
/// Counting reads this many positions at once, so that no statement takes long.
const COUNTED_AT_ONCE: Position = 250_000;
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

    /// The last position before this one that has a row.
    async fn last_before(&self, position: Position) -> Result<Option<Position>, StoreError>;

    async fn latest(&self, filter: &LogFilter, span: Span, count: usize) -> Result<Found, StoreError>;

    /// Matching entries of a span by hour, event type and outcome.
    async fn count(&self, filter: &LogFilter, span: Span) -> Result<Vec<HourCount>, StoreError>;
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
    let at_once = searched_at_once(filter);
    let mut list = LogList::default();
    for _ in 0..SEARCHES_MAX {
        // Many positions may have been passed over.
        if let Some(at_once) = at_once
            && end - first > at_once
        {
            end = log.last_before(end).await?.map_or(first, |last| last + 1);
        }
        if end <= first + 1 {
            return Ok(list);
        }
        let from = at_once.map_or(first, |at_once| first.max(end - at_once));
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

/// [`EventLog::counts`]
pub(super) async fn counts(
    log: &impl SearchedLog,
    filter: &LogFilter,
    entries_max: Position,
) -> Result<LogCounts, StoreError> {
    let Span { first, end } = span(log, filter).await?;
    let (began, mut left) = (Instant::now(), entries_max);
    let mut sums: BTreeMap<(Timestamp, String, String), u64> = BTreeMap::new();
    // Everything from here on is counted.
    let mut counted = end;
    let mut complete_since = None;
    while let Some(last) = log.last_before(counted).await?.filter(|last| *last > first) {
        if left <= 0 || began.elapsed() > COUNTING_TIME_MAX {
            let row = log.row_from(counted).await?;
            complete_since = Some(row.map_or_else(Timestamp::now, |(_, at)| at));
            break;
        }
        let from = first.max(last - COUNTED_AT_ONCE.min(left));
        let part = Span {
            first: from,
            end: last + 1,
        };
        for part in log.count(filter, part).await? {
            *sums.entry((part.hour, part.event_type, part.status)).or_default() += part.count;
        }
        left -= last - from;
        counted = from + 1;
    }
    let counts = sums
        .into_iter()
        .map(|((hour, event_type, status), count)| HourCount {
            hour,
            event_type,
            status,
            count,
        });
    Ok(LogCounts {
        counts: counts.collect(),
        complete_since: complete_since.filter(|at| filter.since.is_none_or(|since| *at > since)),
    })
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

/// How many positions one search may cover. `None`: an index leads to the entries that match, and to no others.
fn searched_at_once(filter: &LogFilter) -> Option<Position> {
    let by_index = [
        &filter.aggregate_id,
        &filter.project_id,
        &filter.user_id,
        &filter.correlation_id,
    ];
    let others = [
        &filter.topic,
        &filter.event_type,
        &filter.aggregate_type,
        &filter.status,
    ];
    let given = |fields: [&Option<String>; 4]| fields.into_iter().flatten().count();
    match (given(by_index), given(others)) {
        (0, _) => Some(SEARCHED),
        (1, 0) => None,
        _ => Some(SEARCHED_BY_INDEX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_with_conditions_beside_the_index_is_bounded() {
        let user = LogFilter {
            user_id: Some("u".into()),
            ..LogFilter::default()
        };
        let dead = LogFilter {
            status: Some("dead".into()),
            ..user.clone()
        };
        assert_eq!(searched_at_once(&LogFilter::default()), Some(SEARCHED));
        assert_eq!(searched_at_once(&user), None);
        assert_eq!(searched_at_once(&dead), Some(SEARCHED_BY_INDEX));
    }
}
