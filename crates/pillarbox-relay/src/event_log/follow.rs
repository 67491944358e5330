//! Reads the log from a position and continues as it grows, without missing an entry that is committed late.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{EventLog, LogEntry, LogRow, Position};
use crate::store::{PageLimit, StoreError};

/// How long a missing position may belong to a transaction that is just being written. Much longer than a settlement
/// takes between its first and its last position; making one void earlier would make the settlement fail and repeat.
const MISSING_MAX: Duration = Duration::from_millis(200);
/// At most this many positions are decided at once.
const FILLED_MAX: i64 = 1_000;
/// How often a reader that finds nothing new checks that the log still has its position.
const CHECKED_EVERY: Duration = Duration::from_secs(5);

/// One reader of the log. It returns every entry after its position once, in order.
pub struct Follower {
    log: Arc<dyn EventLog>,
    at: Position,
    /// Since when the next position is missing although a later one exists.
    missing_since: Option<Instant>,
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
        "the log ends at position {last}, before the given one: it was created again or restored, or the position belongs \
         to another outbox. Start after 0, or without a position"
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
    /// Starts after a position, or at the end of the log.
    pub async fn begin(log: Arc<dyn EventLog>, after: Option<Position>) -> Result<Self, FollowError> {
        let bounds = log.bounds().await?;
        let at = match after {
            None => bounds.last,
            Some(after) if after > bounds.last => return Err(FollowError::Beyond { last: bounds.last }),
            // From the beginning, wherever that is now.
            Some(after) if after <= 0 => bounds.expired,
            Some(after) if after < bounds.expired => {
                return Err(FollowError::Expired {
                    expired: bounds.expired,
                });
            }
            Some(after) => after,
        };
        Ok(Self::at(log, at))
    }

    /// Starts after a position that is known to exist.
    pub(super) fn at(log: Arc<dyn EventLog>, at: Position) -> Self {
        Self {
            log,
            at,
            missing_since: None,
            checked_at: Instant::now(),
        }
    }

    /// Every entry up to here was returned.
    pub fn position(&self) -> Position {
        self.at
    }

    /// The next entries; none if there is nothing new. May be called again after a [`FollowError::Store`].
    pub async fn next(&mut self, limit: PageLimit) -> Result<Followed, FollowError> {
        let rows = self.log.read(self.at, limit).await?;
        let Some(first) = rows.first() else {
            self.missing_since = None;
            self.check_the_end().await?;
            return Ok(Followed::default());
        };
        if first.position() > self.at + 1 {
            return self.wait_for_missing(first.position()).await;
        }
        self.missing_since = None;
        let mut followed = Followed::default();
        for row in rows {
            if row.position() != self.at + 1 {
                break;
            }
            self.at += 1;
            if let LogRow::Entry(entry) = row {
                followed.entries.push(*entry);
            }
        }
        followed.more = true;
        Ok(followed)
    }

    /// The position after this one is missing, and `found` exists.
    async fn wait_for_missing(&mut self, found: Position) -> Result<Followed, FollowError> {
        let expired = self.log.bounds().await?.expired;
        if self.at < expired {
            return Err(FollowError::Expired { expired });
        }
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        if since.elapsed() < MISSING_MAX {
            return Ok(Followed::default());
        }
        let first = self.at + 1;
        self.log
            .fill(first, (found - 1).min(self.at + FILLED_MAX))
            .await?;
        self.missing_since = None;
        Ok(Followed {
            more: true,
            ..Followed::default()
        })
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
}
