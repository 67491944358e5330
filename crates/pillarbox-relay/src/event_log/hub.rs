//! Shares one reader of the log among many clients.
//!
//! The hub keeps the latest delivered events in memory. A client that is further behind first reads the log itself,
//! until it has reached them. The hub waits for no client: one that falls behind what is kept is cut off and told its
//! position. While nobody listens, nothing is read and nothing is kept.

mod ring;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

pub use self::ring::Line;
use self::ring::Ring;
use super::{EventLog, FollowError, Follower, LogFilter, LogOutcome, Position};
use crate::store::PageLimit;

/// How often the log is read while events arrive. Each look wakes all clients, so this also limits their cost.
const PACE: Duration = Duration::from_millis(20);
/// How often it is read otherwise.
const IDLE_PACE: Duration = Duration::from_millis(100);
const BUSY: Duration = Duration::from_secs(1);
/// The wait after the database failed.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// A hub starts this far before the end of the log: clients of a restarted relay come back with slightly older positions.
const BACK: Position = 5_000;
const PAGE: PageLimit = PageLimit {
    events: 1_000,
    bytes: 2 * 1024 * 1024,
    payload_bytes_max: usize::MAX,
};
/// A page for one client that is behind.
const OWN_PAGE: PageLimit = PageLimit {
    events: 200,
    bytes: 64 * 1024,
    payload_bytes_max: usize::MAX,
};
/// At most this many clients read the log themselves at one time.
const OWN_READERS_MAX: usize = 8;
/// At most this many clients have such a page in memory, or one of a single large event.
const OWN_PAGES_MAX: usize = 1_000;
const LARGE_PAGES_MAX: usize = 32;
/// One answer for a client.
const TAKEN_LINES_MAX: usize = 256;
const TAKEN_BYTES_MAX: usize = 64 * 1024;

/// The shared reader. Dropping it ends all subscriptions.
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    log: Arc<dyn EventLog>,
    ring: RwLock<Ring>,
    /// Changes whenever the ring does. Its receivers are the clients.
    latest: watch::Sender<State>,
    /// Wakes the shared reader when the first client comes.
    wanted: Notify,
    own_readers: Semaphore,
    own_pages: Arc<Semaphore>,
    large_pages: Arc<Semaphore>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Following(Position),
    /// The log is not the one that was followed. Clients must start again.
    Replaced,
    Closed,
}

/// The next thing for a client.
#[derive(Debug)]
pub enum Next {
    Lines(Vec<Arc<Line>>),
    End(End),
}

/// Why a subscription ended. The client can continue after [`Subscription::position`], except after `Replaced`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    TooSlow,
    Expired,
    Replaced,
    Closed,
}

impl Hub {
    /// Starts the shared reader on the current tokio runtime.
    pub fn start(log: Arc<dyn EventLog>) -> Self {
        let shared = Arc::new(Shared {
            log,
            ring: RwLock::default(),
            latest: watch::Sender::new(State::Following(0)),
            wanted: Notify::new(),
            own_readers: Semaphore::new(OWN_READERS_MAX),
            own_pages: Arc::new(Semaphore::new(OWN_PAGES_MAX)),
            large_pages: Arc::new(Semaphore::new(LARGE_PAGES_MAX)),
        });
        tokio::spawn(keep_following(shared.clone()));
        Self { shared }
    }

    /// Follows the log after a position, or from now on.
    pub async fn subscribe(
        &self,
        after: Option<Position>,
        filter: LogFilter,
    ) -> Result<Subscription, FollowError> {
        let latest = self.shared.latest.subscribe();
        self.shared.wanted.notify_one();
        let follower = Follower::begin(self.shared.log.clone(), after).await?;
        Ok(Subscription {
            latest,
            shared: self.shared.clone(),
            at: follower.position(),
            behind: Some(follower),
            own_page: OwnPage::default(),
            filter,
        })
    }

    pub fn subscribers(&self) -> usize {
        self.shared.latest.receiver_count()
    }

    /// Ends every subscription.
    pub fn close(&self) {
        self.shared.latest.send_replace(State::Closed);
        self.shared.wanted.notify_one();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn ring<T>(&self, read: impl FnOnce(&Ring) -> T) -> T {
        read(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Ring) -> T) -> T {
        change(&mut self.ring.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the clients, unless the hub was closed. Returns whether it is open.
    fn tell(&self, state: State) -> bool {
        self.latest.send_if_modified(|known| {
            let changes = *known != State::Closed && *known != state;
            if changes {
                *known = state;
            }
            changes
        });
        *self.latest.borrow() != State::Closed
    }
}

/// Reads the log into the ring while there are clients.
async fn keep_following(shared: Arc<Shared>) {
    let mut follower: Option<Follower> = None;
    let mut read_at = Instant::now();
    loop {
        if *shared.latest.borrow() == State::Closed {
            return;
        }
        if shared.latest.receiver_count() == 0 {
            follower = None;
            shared.change(|ring| *ring = Ring::default());
            shared.wanted.notified().await;
            continue;
        }
        match look(&shared, &mut follower).await {
            Ok(Some(reached)) => {
                read_at = Instant::now();
                if !shared.tell(State::Following(reached)) {
                    return;
                }
            }
            Ok(None) => {}
            Err(FollowError::Store(error)) => {
                tracing::debug!(why = error.chain(), "can't read the event log; trying again");
                tokio::time::sleep(AFTER_ERROR).await;
            }
            Err(FollowError::Expired { .. } | FollowError::Beyond { .. }) => {
                follower = None;
                shared.change(|ring| *ring = Ring::default());
                shared.tell(State::Replaced);
            }
        }
        let pace = if read_at.elapsed() < BUSY { PACE } else { IDLE_PACE };
        tokio::time::sleep(pace).await;
    }
}

/// One look at the log. Returns how far it was read, if that is further than before.
async fn look(shared: &Shared, follower: &mut Option<Follower>) -> Result<Option<Position>, FollowError> {
    let follower = match follower {
        Some(follower) => follower,
        None => {
            let bounds = shared.log.bounds().await?;
            let after = (bounds.last - BACK).max(bounds.expired).max(0);
            shared.change(|ring| *ring = Ring::after(after));
            shared.tell(State::Following(after));
            follower.insert(Follower::at(shared.log.clone(), after))
        }
    };
    let before = follower.position();
    loop {
        let followed = follower.next(PAGE).await?;
        let reached = follower.position();
        shared.change(|ring| ring.push(followed.entries, reached));
        // Read on until the end, but tell the clients now and then.
        if !followed.more || reached - before >= PAGE.events as Position {
            return Ok((reached > before).then_some(reached));
        }
    }
}

/// One client of the hub.
pub struct Subscription {
    shared: Arc<Shared>,
    latest: watch::Receiver<State>,
    filter: LogFilter,
    at: Position,
    /// Reads the log until it reaches the ring. `None`: the client has reached it.
    behind: Option<Follower>,
    own_page: OwnPage,
}

/// The lines that a client read itself, and its share of the memory for them.
#[derive(Default)]
struct OwnPage {
    lines: Vec<Arc<Line>>,
    places: Vec<OwnedSemaphorePermit>,
}

impl Subscription {
    /// Everything that the client wants up to here was returned.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Waits for the next lines. Dropping the call loses nothing.
    pub async fn next(&mut self) -> Next {
        loop {
            if !self.own_page.lines.is_empty() {
                return Next::Lines(std::mem::take(&mut self.own_page.lines));
            }
            self.own_page.places.clear();
            match *self.latest.borrow_and_update() {
                State::Following(_) => {}
                State::Replaced => return Next::End(End::Replaced),
                State::Closed => return Next::End(End::Closed),
            }
            let taken = self
                .shared
                .ring(|ring| ring.take(self.at, &self.filter, TAKEN_LINES_MAX, TAKEN_BYTES_MAX));
            match taken {
                Some((lines, reached)) => {
                    self.behind = None;
                    self.at = reached;
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

    /// Reads the log for this client alone, until it reaches the ring. Semaphores are never closed.
    async fn read_own_page(&mut self) -> Result<(), FollowError> {
        let Some(follower) = &mut self.behind else {
            return Ok(());
        };
        let place = self.shared.own_pages.clone().acquire_owned().await.ok();
        let reading = self.shared.own_readers.acquire().await;
        let followed = follower.next(OWN_PAGE).await?;
        self.at = follower.position();
        let wanted = followed
            .entries
            .into_iter()
            .filter(|entry| entry.outcome == LogOutcome::Published && self.filter.selects(&entry.event));
        self.own_page.lines = wanted.filter_map(Line::new).map(Arc::new).collect();
        self.own_page.places.extend(place);
        let bytes: usize = self.own_page.lines.iter().map(|line| line.text.len()).sum();
        if bytes > 2 * OWN_PAGE.bytes {
            // While it waits here, nobody else reads in its place.
            let large = self.shared.large_pages.clone().acquire_owned().await;
            self.own_page.places.extend(large);
        }
        drop(reading);
        if !followed.more {
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }
}
