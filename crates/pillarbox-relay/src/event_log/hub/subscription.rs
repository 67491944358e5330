//! One client of the hub.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{AFTER_ERROR, End, Line, Next, PACE, Shared, State};
use crate::{
    event_log::{FollowError, Follower, LogFilter, LogOutcome, Position},
    store::PageLimit,
};

/// A page for one client that is behind.
const OWN_PAGE: PageLimit = PageLimit {
    events: 200,
    bytes: 64 * 1024,
    payload_bytes_max: usize::MAX,
};
/// A page with more than this counts as large. It has one event.
const LARGE_PAGE_FROM: usize = 2 * OWN_PAGE.bytes;
/// One answer for a client.
const TAKEN_LINES_MAX: usize = 256;
const TAKEN_BYTES_MAX: usize = 64 * 1024;

/// One client of the hub.
pub struct Subscription {
    pub(super) shared: Arc<Shared>,
    pub(super) latest: watch::Receiver<State>,
    /// The log that this client follows.
    pub(super) generation: u64,
    pub(super) filter: LogFilter,
    /// Everything up to here was returned.
    pub(super) sent: Position,
    /// Reads the log until it reaches the ring. `None`: the client has reached it.
    pub(super) behind: Option<Follower>,
    /// The lines that the client read itself and that were not returned yet. They reach up to the follower's position.
    pub(super) own_lines: Vec<Arc<Line>>,
    pub(super) places: Places,
}

/// The share of a client that reads the log itself in the memory for such pages. It keeps it until it asks for the next
/// page, so until its page was written to it.
#[derive(Default)]
pub(super) struct Places {
    page: Option<OwnedSemaphorePermit>,
    large: Option<OwnedSemaphorePermit>,
    /// The next page is large, and is read when there is a place for it.
    wants_large: bool,
}

impl Subscription {
    /// Everything that the client wants up to here was returned. The client can continue after it.
    pub fn position(&self) -> Position {
        self.sent
    }

    /// Waits for the next lines. Dropping the call loses nothing.
    pub async fn next(&mut self) -> Next {
        loop {
            if !self.own_lines.is_empty() {
                self.reached_by_follower();
                return Next::Lines(std::mem::take(&mut self.own_lines));
            }
            self.places.page = None;
            self.places.large = None;
            if self.latest.borrow_and_update().closed {
                return Next::End(End::Closed);
            }
            let taken = self
                .shared
                .ring(|ring| ring.take(self.sent, &self.filter, TAKEN_LINES_MAX, TAKEN_BYTES_MAX));
            // Behind the look at the ring: the lines of another log come into it later than the new number.
            if self.latest.borrow().generation != self.generation {
                return Next::End(End::Replaced);
            }
            match taken {
                Some((lines, reached)) => {
                    self.behind = None;
                    self.sent = reached;
                    if !lines.is_empty() {
                        return Next::Lines(lines);
                    }
                    if self.latest.changed().await.is_err() {
                        return Next::End(End::Closed);
                    }
                }
                None if self.behind.is_none() => return Next::End(End::TooSlow),
                None => match self.read_own_page().await {
                    Ok(()) => {}
                    Err(FollowError::Expired { .. }) => return Next::End(End::Expired),
                    Err(FollowError::Beyond { .. }) => return Next::End(End::Replaced),
                    Err(FollowError::Store(error)) => {
                        tracing::debug!(why = error.chain(), "can't read the event log; trying again");
                        tokio::time::sleep(AFTER_ERROR).await;
                    }
                },
            }
        }
    }

    /// Reads the log for this client alone, until it reaches the ring. Semaphores are never closed. What is read stays
    /// here if the call is dropped; then nothing of it counts as returned.
    async fn read_own_page(&mut self) -> Result<(), FollowError> {
        let page = self.shared.own_pages.clone().acquire_owned().await.ok();
        // Before a place to read: while this client waits, others read.
        let mut large = match self.places.wants_large {
            true => self.shared.large_pages.clone().acquire_owned().await.ok(),
            false => None,
        };
        let reading = self.shared.own_readers.acquire().await;
        let Some(follower) = &mut self.behind else {
            return Ok(());
        };
        let before = follower.position();
        let followed = follower.next(OWN_PAGE).await?;
        let wanted = followed
            .entries
            .into_iter()
            .filter(|entry| entry.outcome == LogOutcome::Published && self.filter.selects(&entry.event));
        let lines: Vec<_> = wanted.filter_map(Line::new).map(Arc::new).collect();
        drop(reading);
        let bytes: usize = lines.iter().map(|line| line.text.len()).sum();
        if bytes > LARGE_PAGE_FROM && large.is_none() {
            large = self.shared.large_pages.clone().try_acquire_owned().ok();
            if large.is_none() {
                // It is read again when there is a place, instead of waiting in memory.
                follower.go_back(before);
                self.places.wants_large = true;
                return Ok(());
            }
        }
        if lines.is_empty() {
            self.reached_by_follower();
            if !followed.more {
                tokio::time::sleep(PACE).await;
            }
            return Ok(());
        }
        self.own_lines = lines;
        self.places = Places {
            page,
            large,
            wants_large: false,
        };
        Ok(())
    }

    /// Everything that the follower has read was returned, or is not wanted.
    fn reached_by_follower(&mut self) {
        if let Some(follower) = &self.behind {
            self.sent = follower.position();
        }
    }
}
