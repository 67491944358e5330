//! Overlapping faults from one seed, on real servers.
//!
//! Each thing that can fail (a server, a process, a network link) has a [`Source`] of faults with its own
//! random number generator. Sources are independent, so a fault begins while others last and while the system
//! recovers from earlier ones. When the time is up, every source ends its fault, and the [`Toll`] says what
//! happened.

mod link;
mod summary;

use std::{
    collections::BTreeMap,
    ops::Range,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use link::{LinkFaults, break_link, break_link_once};
pub use summary::{REPORT_FOLDER, Summary};

/// After the end of the last fault, everything committed must be delivered within this time.
pub const LIVENESS_BOUND: Duration = Duration::from_secs(30);
/// Ending a fault can mean starting a server on a busy machine.
const END_MAX: Duration = Duration::from_secs(120);

/// The sources of faults of one campaign.
pub struct Storm {
    seed: u64,
    over: CancellationToken,
    tally: Arc<Mutex<Tally>>,
    /// One task polls them all: the work they wait for runs elsewhere.
    sources: FuturesUnordered<LocalBoxFuture<'static, ()>>,
    count: u64,
}

/// What happened until the storm was over.
#[derive(Debug, Clone)]
pub struct Toll {
    /// How many faults of each kind.
    pub faults: BTreeMap<String, u64>,
    pub at_once_max: usize,
    /// The average number of faults in progress.
    pub at_once_mean: f64,
    /// When the last fault ended.
    pub ended: Instant,
}

#[derive(Debug)]
struct Tally {
    faults: BTreeMap<String, u64>,
    at_once: usize,
    at_once_max: usize,
    /// The number of faults in progress, integrated over time.
    fault_seconds: f64,
    began: Instant,
    changed: Instant,
    ended: Instant,
}

impl Storm {
    pub fn new(seed: u64) -> Self {
        let now = Instant::now();
        Self {
            seed,
            over: CancellationToken::new(),
            tally: Arc::new(Mutex::new(Tally {
                faults: BTreeMap::new(),
                at_once: 0,
                at_once_max: 0,
                fault_seconds: 0.0,
                began: now,
                changed: now,
                ended: now,
            })),
            sources: FuturesUnordered::new(),
            count: 0,
        }
    }

    /// Cancelled when the time is up, before the last faults end.
    pub fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// Adds something that fails now and then. What `fail` does depends on the seed and on the order of these
    /// calls.
    pub fn add<F>(&mut self, fail: impl FnOnce(Source) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.count += 1;
        let seed = self
            .seed
            .wrapping_add(self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let source = Source {
            rng: StdRng::seed_from_u64(seed),
            over: self.over.clone(),
            tally: Arc::clone(&self.tally),
        };
        self.sources.push(fail(source).boxed_local());
    }

    /// Runs all sources for this time, then waits until every fault has ended.
    ///
    /// # Panics
    /// If a source panics, or a fault does not end.
    pub async fn rage(mut self, time: Duration) -> Toll {
        let mut all = pin!(async { while self.sources.next().await.is_some() {} });
        let unfinished = tokio::time::timeout(time, &mut all).await.is_err();
        self.over.cancel();
        if unfinished {
            let ended = tokio::time::timeout(END_MAX, &mut all).await;
            assert!(ended.is_ok(), "a fault did not end within {END_MAX:?}");
        }
        lock(&self.tally).toll()
    }
}

/// Makes one thing fail: its random numbers, and the signal that the storm is over.
pub struct Source {
    rng: StdRng,
    over: CancellationToken,
    tally: Arc<Mutex<Tally>>,
}

impl Source {
    /// Every decision comes from here.
    pub fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }

    /// Waits for the next fault. `false`: the storm is over.
    pub async fn next(&mut self, milliseconds: Range<u64>) -> bool {
        self.last(milliseconds).await;
        !self.over.is_cancelled()
    }

    /// Waits while a fault lasts, or until the storm is over.
    pub async fn last(&mut self, milliseconds: Range<u64>) {
        let time = Duration::from_millis(self.rng.random_range(milliseconds));
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.over.cancelled() => {}
        }
    }

    /// Counts a fault. It is in progress until the guard is dropped.
    pub fn begin(&self, kind: impl Into<String>) -> InProgress {
        lock(&self.tally).begin(kind.into());
        InProgress(Arc::clone(&self.tally))
    }
}

/// A fault that is not over yet.
#[must_use]
pub struct InProgress(Arc<Mutex<Tally>>);

impl Drop for InProgress {
    fn drop(&mut self) {
        lock(&self.0).end();
    }
}

impl Tally {
    fn begin(&mut self, kind: String) {
        self.pass();
        *self.faults.entry(kind).or_default() += 1;
        self.at_once += 1;
        self.at_once_max = self.at_once_max.max(self.at_once);
    }

    fn end(&mut self) {
        self.pass();
        self.at_once -= 1;
        self.ended = self.changed;
    }

    fn pass(&mut self) {
        let now = Instant::now();
        self.fault_seconds += self.at_once as f64 * (now - self.changed).as_secs_f64();
        self.changed = now;
    }

    fn toll(&self) -> Toll {
        Toll {
            faults: self.faults.clone(),
            at_once_max: self.at_once_max,
            at_once_mean: self.fault_seconds / (self.ended - self.began).as_secs_f64().max(0.001),
            ended: self.ended,
        }
    }
}

impl Toll {
    pub fn total(&self) -> u64 {
        self.faults.values().sum()
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
