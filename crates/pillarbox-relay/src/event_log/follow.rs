//! Reads the log from a position and continues as it grows, without missing an entry that is committed late.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{EventLog, LogBounds, LogEntry, LogRow, Position};
use crate::store::{PageLimit, StoreError};

/// How long a missing position may belong to a transaction that is just being written. Much longer than a settlement
/// takes between its first and its last position; making one void earlier would make the settlement fail and repeat.
const MISSING_MAX: Duration = Duration::from_millis(200);
/// At most this many positions are decided at once.
const FILLED_MAX: i64 = 1_000;
/// Open transactions have never taken this many positions in a row: the log was emptied, or its counter was moved.
const SKIPPED_FROM: i64 = 100_000;
/// Of such a gap, the last positions may still belong to open transactions.
const SKIPPED_UP_TO: i64 = 10_000;
/// A reader that starts now looks at this many of the latest positions for entries that are not committed yet.
const LATEST: i64 = 1_000;
/// A transaction is over after this time, so a position that is still missing stays void.
const OPEN_MAX: SignedDuration = SignedDuration::from_secs(120);
/// How often a reader that finds nothing new checks that the log still has its position.
const CHECKED_EVERY: Duration = Duration::from_secs(5);

/// Where a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the next entry.
    Now,
    /// After this position; after 0: with the first entry that exists.
    After(Position),
    /// With this many of the latest positions, or fewer.
    Last(Position),
}

impl From<Position> for Start {
    fn from(after: Position) -> Self {
        Self::After(after)
    }
}

impl From<Option<Position>> for Start {
    fn from(after: Option<Position>) -> Self {
        after.map_or(Self::Now, Self::After)
    }
}

/// One reader of the log. It returns every entry after its position once, in order.
pub struct Follower {
    log: Arc<dyn EventLog>,
    at: Position,
    /// It started at the beginning of the log and has found nothing yet.
    at_the_beginning: bool,
    /// Positions that are missing although a later one exists: that one, and since when they are known to be.
    missing: Option<(Position, Instant)>,
    checked_at: Instant,
}

/// Why a position can't be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error(
        "the log starts after position {expired}: older entries were deleted because of their age. Start after {expired}, \
         and read what is missing from the archive or the service itself"
    )]
    Expired { expired: Position },
    #[error(
        "the log does not have this position; its last one is {last}. It was emptied, created again or restored, or the \
         position belongs to another outbox. Start after 0, or without a position"
    )]
    Beyond { last: Position },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a [`Follower`] found.
#[derive(Debug, Default)]
pub struct Followed {
    pub entries: Vec<LogEntry>,
    /// There may be more to read now.
    pub more: bool,
}

impl Follower {
    pub async fn begin(log: Arc<dyn EventLog>, start: impl Into<Start>) -> Result<Self, FollowError> {
        let bounds = log.bounds().await?;
        let start = start.into();
        let at = match start {
            Start::Now => end(&*log, bounds).await?,
            // From the beginning, wherever that is now.
            Start::After(after) if after <= 0 => bounds.expired,
            Start::After(after) => resumed(&*log, bounds, after).await?,
            Start::Last(count) => {
                let at = bounds.last.saturating_sub(count).max(bounds.expired);
                // Not within positions that were passed over.
                let next = log.places(at, 1).await?.pop();
                match next {
                    Some(next) if next.positions.first <= at && !has_row(&*log, at).await? => {
                        next.positions.last
                    }
                    _ => at,
                }
            }
        };
        Ok(Self {
            log,
            at,
            at_the_beginning: matches!(start, Start::After(after) if after <= 0),
            missing: None,
            checked_at: Instant::now(),
        })
    }

    /// Every entry up to here was returned.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Returns the entries after this position again. The follower must have been there.
    pub(super) fn go_back(&mut self, position: Position) {
        self.at = position;
    }

    /// The next entries; none if there is nothing new. May be called again after a [`FollowError::Store`], and after it
    /// was dropped: it has returned nothing then.
    pub async fn next(&mut self, limit: PageLimit) -> Result<Followed, FollowError> {
        let rows = self.log.read(self.at, limit).await?;
        let Some(first) = rows.first() else {
            self.missing = None;
            self.check_the_end().await?;
            return Ok(Followed::default());
        };
        if first.first() > self.at + 1 {
            return self.wait_for_missing(first.first()).await;
        }
        // Positions were passed over, and this reader's was among them: what it has read no longer exists.
        if first.first() <= self.at && !self.is_known().await? {
            return Err(FollowError::Beyond {
                last: first.position(),
            });
        }
        self.at_the_beginning = false;
        let mut followed = Followed::default();
        for row in rows {
            if row.first() > self.at + 1 {
                break;
            }
            self.at = row.position();
            if let LogRow::Entry(entry) = row {
                followed.entries.push(*entry);
            }
        }
        followed.more = true;
        Ok(followed)
    }

    /// The position after this one is missing, and `found` exists.
    async fn wait_for_missing(&mut self, found: Position) -> Result<Followed, FollowError> {
        let bounds = self.log.bounds().await?;
        if self.at < bounds.expired {
            if self.at_the_beginning {
                self.at = bounds.expired;
                return Ok(more());
            }
            return Err(FollowError::Expired {
                expired: bounds.expired,
            });
        }
        // Whatever is missing below a known row is missing for as long.
        let known = self.missing.filter(|(later, _)| found <= *later);
        let (_, since) = *self.missing.insert(known.unwrap_or((found, Instant::now())));
        if since.elapsed() < MISSING_MAX {
            return Ok(Followed::default());
        }
        let (first, last) = (self.at + 1, found - 1);
        if last - first >= SKIPPED_FROM {
            if !self.is_known().await? {
                return Err(FollowError::Beyond { last: bounds.last });
            }
            self.log.skip(first, last - SKIPPED_UP_TO).await?;
            return Ok(more());
        }
        self.log.fill(first, last.min(self.at + FILLED_MAX)).await?;
        Ok(more())
    }

    /// An emptied log has no entry at this reader's position, and new entries would go unnoticed.
    async fn check_the_end(&mut self) -> Result<(), FollowError> {
        if self.checked_at.elapsed() < CHECKED_EVERY {
            return Ok(());
        }
        self.checked_at = Instant::now();
        let last = self.log.bounds().await?.last;
        if last < self.at {
            return Err(FollowError::Beyond { last });
        }
        Ok(())
    }

    /// Whether the log has what this reader has read last, or it has read nothing.
    async fn is_known(&self) -> Result<bool, StoreError> {
        Ok(self.at_the_beginning || has_row(&*self.log, self.at).await?)
    }
}

fn more() -> Followed {
    Followed {
        more: true,
        ..Followed::default()
    }
}

/// The end of the log, before the first position that an open transaction may have taken. An empty log gets a first
/// position: 0 would mean the beginning of the log later, after entries have expired.
async fn end(log: &dyn EventLog, bounds: LogBounds) -> Result<Position, StoreError> {
    if bounds.last <= 0 {
        return log.mark().await;
    }
    let mut at = (bounds.last - LATEST).max(bounds.expired);
    let recent = Timestamp::now() - OPEN_MAX;
    for place in log.places(at, LATEST as usize).await? {
        if place.positions.first > at + 1 && place.at > recent {
            break;
        }
        at = place.positions.last;
    }
    Ok(at)
}

async fn resumed(log: &dyn EventLog, bounds: LogBounds, after: Position) -> Result<Position, FollowError> {
    if after > bounds.last {
        return Err(FollowError::Beyond { last: bounds.last });
    }
    if after < bounds.expired {
        return Err(FollowError::Expired {
            expired: bounds.expired,
        });
    }
    let next = log.places(after, 1).await?.pop();
    if next.is_some_and(|next| next.positions.first <= after) && !has_row(log, after).await? {
        return Err(FollowError::Beyond { last: bounds.last });
    }
    Ok(after)
}

async fn has_row(log: &dyn EventLog, position: Position) -> Result<bool, StoreError> {
    let found = log.places(position - 1, 1).await?.pop();
    Ok(found.is_some_and(|place| place.positions.last == position))
}
