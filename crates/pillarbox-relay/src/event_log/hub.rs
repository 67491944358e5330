//! Shares one reader of the log among many clients.
//!
//! The hub keeps the latest delivered events in memory. A client that is further behind first reads the log itself,
//! until it has reached them. The hub waits for no client: one that falls behind what is kept is cut off and told its
//! position. While nobody listens, nothing is read and nothing is kept.

mod ring;
mod subscription;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};

use self::ring::Ring;
use self::subscription::Places;
pub use self::{ring::Line, subscription::Subscription};
use super::{EventLog, FollowError, Follower, LogFilter, Position, Start};
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
/// At most this many clients read the log themselves at one time.
const OWN_READERS_MAX: usize = 8;
/// At most this many clients have a page that they read themselves in memory, or one of a single large event.
const OWN_PAGES_MAX: usize = 1_000;
const LARGE_PAGES_MAX: usize = 32;

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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    reached: Position,
    /// Rises when the log is not the one that was followed. Clients of an earlier one must start again, however late
    /// they look.
    generation: u64,
    closed: bool,
}

/// The next thing for a client.
#[derive(Debug)]
pub enum Next {
    Lines(Vec<Arc<Line>>),
    End(End),
}

/// Why a subscription ended. The client can continue after [`Subscription::position`], except after `Expired` and
/// `Replaced`.
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
            latest: watch::Sender::new(State::default()),
            wanted: Notify::new(),
            own_readers: Semaphore::new(OWN_READERS_MAX),
            own_pages: Arc::new(Semaphore::new(OWN_PAGES_MAX)),
            large_pages: Arc::new(Semaphore::new(LARGE_PAGES_MAX)),
        });
        tokio::spawn(keep_following(shared.clone()));
        Self { shared }
    }

    /// Follows the log from there on.
    pub async fn subscribe(
        &self,
        start: impl Into<Start>,
        filter: LogFilter,
    ) -> Result<Subscription, FollowError> {
        let latest = self.shared.latest.subscribe();
        let generation = latest.borrow().generation;
        self.shared.wanted.notify_one();
        let follower = Follower::begin(self.shared.log.clone(), start).await?;
        Ok(Subscription {
            sent: follower.position(),
            behind: Some(follower),
            shared: self.shared.clone(),
            latest,
            generation,
            filter,
            own_lines: Vec::new(),
            places: Places::default(),
        })
    }

    pub fn subscribers(&self) -> usize {
        self.shared.latest.receiver_count()
    }

    /// Ends every subscription.
    pub fn close(&self) {
        self.shared.latest.send_modify(|state| state.closed = true);
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

    fn reached(&self, reached: Position) {
        self.latest.send_if_modified(|state| {
            let changes = state.reached != reached;
            state.reached = reached;
            changes
        });
    }

    /// Ends the subscriptions that exist.
    fn replaced(&self) {
        self.change(|ring| *ring = Ring::default());
        self.latest.send_modify(|state| state.generation += 1);
    }
}

/// Reads the log into the ring while there are clients.
async fn keep_following(shared: Arc<Shared>) {
    let mut follower: Option<Follower> = None;
    let mut read_at = Instant::now();
    loop {
        if shared.latest.borrow().closed {
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
                shared.reached(reached);
            }
            Ok(None) => {}
            Err(FollowError::Store(error)) => {
                tracing::debug!(why = error.chain(), "can't read the event log; trying again");
                tokio::time::sleep(AFTER_ERROR).await;
            }
            Err(FollowError::Expired { .. } | FollowError::Beyond { .. }) => {
                follower = None;
                shared.replaced();
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
            let new = Follower::begin(shared.log.clone(), Start::Last(BACK)).await?;
            let after = new.position();
            shared.change(|ring| *ring = Ring::after(after));
            shared.reached(after);
            follower.insert(new)
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
