//! Which lanes this relay holds, and until when it may use them.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use pillarbox::lane::LANES;
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    event::Seq,
    store::{Census, HeldLane, RelayId, Store, StoreError},
};

/// How many of `lanes` the relay with this rank should hold. All lanes are shared out, and two shares differ by at most
/// one lane.
pub fn fair_share(lanes: u16, relays: u16, rank: u16) -> u16 {
    let relays = relays.max(1);
    lanes / relays + u16::from(rank < lanes % relays)
}

/// The lanes of this relay, and the time until which it may use them.
pub(super) struct LaneLeases {
    store: Arc<dyn Store>,
    relay: RelayId,
    name: String,
    lease: Duration,
    /// The wall clock.
    clock: fn() -> Timestamp,
    /// The lanes of the current tenure.
    pub(super) lanes: Vec<HeldLane>,
    /// Lanes taken since the tenure began. Heartbeats renew them too. The next tenure works on them.
    gained: Vec<HeldLane>,
    /// When the last successful heartbeat was sent. Nothing is published later than one lease after it. So this relay
    /// stops before its lease ends in the store, whatever the store's clock says.
    renewed: Option<Moment>,
    /// A running heartbeat. It is kept here and not in a tenure, because the lanes that it takes must not be lost when
    /// a tenure ends.
    beating: Option<Beating>,
}

struct Beating {
    task: JoinHandle<Result<Beat, StoreError>>,
    since: Instant,
}

/// A moment on both clocks of this machine. Either clock may stand still: the monotonic clock while the machine is
/// suspended, the wall clock when it is set back.
#[derive(Clone, Copy)]
struct Moment {
    monotonic: Instant,
    wall: Timestamp,
}

impl Moment {
    fn now(clock: fn() -> Timestamp) -> Self {
        Self {
            monotonic: Instant::now(),
            wall: clock(),
        }
    }

    /// By the clock that advanced more.
    fn elapsed(self, clock: fn() -> Timestamp) -> Duration {
        let wall = clock().duration_since(self.wall);
        self.monotonic
            .elapsed()
            .max(Duration::try_from(wall).unwrap_or_default())
    }
}

/// The answer to a heartbeat.
pub(super) struct Beat {
    sent: Moment,
    census: Census,
    gained: Vec<HeldLane>,
}

/// What the relay must do about its lanes after a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Keep,
    /// More lanes were taken.
    Gained,
    /// This many must be released.
    Surplus(usize),
    /// Another relay took some. They are no longer in `lanes`.
    Lost,
}

impl LaneLeases {
    pub(super) fn new(
        store: Arc<dyn Store>,
        relay: RelayId,
        name: String,
        lease: Duration,
        clock: fn() -> Timestamp,
    ) -> Self {
        Self {
            store,
            relay,
            name,
            lease,
            clock,
            lanes: Vec::new(),
            gained: Vec::new(),
            renewed: None,
            beating: None,
        }
    }

    pub(super) fn relay(&self) -> RelayId {
        self.relay
    }

    /// Short enough that two lost heartbeats do no harm.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.lease / 4
    }

    /// Whether the relay may still use its lanes. There is a margin for what is on its way to the broker.
    pub(super) fn is_valid(&self) -> bool {
        self.renewed
            .is_some_and(|renewed| renewed.elapsed(self.clock) + self.lease / 10 < self.lease)
    }

    /// Records how far the lanes of this tenure are settled.
    pub(super) fn mark(&mut self, low_mark: Seq) {
        for lane in &mut self.lanes {
            lane.low_mark = lane.low_mark.max(low_mark);
        }
    }

    /// Starts a heartbeat, unless one is running. It renews the leases, writes the low marks, and takes more lanes if
    /// the fair share allows it. [`LaneLeases::beaten`] returns the answer, and [`LaneLeases::merge_beat`] applies it.
    pub(super) fn start_beat(&mut self) {
        if self.beating.is_some() {
            return;
        }
        let (store, relay, name, lease) = (self.store.clone(), self.relay, self.name.clone(), self.lease);
        let clock = self.clock;
        let all: Vec<HeldLane> = self.lanes.iter().chain(&self.gained).copied().collect();
        let task = tokio::spawn(async move {
            let sent = Moment::now(clock);
            let census = store.heartbeat(relay, &name, lease, &all).await?;
            let share = usize::from(fair_share(LANES, census.relays, census.rank));
            let gained = match share.saturating_sub(census.held.len()) {
                0 => Vec::new(),
                missing => store.take_lanes(relay, missing, lease).await?,
            };
            Ok(Beat { sent, census, gained })
        });
        self.beating = Some(Beating {
            task,
            since: Instant::now(),
        });
    }

    pub(super) fn is_beating(&self) -> bool {
        self.beating.is_some()
    }

    pub(super) fn beating_since(&self) -> Option<Instant> {
        self.beating.as_ref().map(|beating| beating.since)
    }

    /// Waits for the answer to the running heartbeat. Never returns if there is none.
    pub(super) async fn beaten(&mut self) -> Result<Beat, StoreError> {
        let Some(beating) = &mut self.beating else {
            return std::future::pending().await;
        };
        let answer = (&mut beating.task).await;
        self.beating = None;
        match answer {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Drops a heartbeat that does not end, and all lanes. Their leases expire, and then they can be taken again.
    pub(super) fn forget(&mut self) {
        if let Some(beating) = self.beating.take() {
            beating.task.abort();
        }
        self.lanes.clear();
        self.gained.clear();
    }

    pub(super) fn merge_beat(&mut self, beat: Beat) -> Change {
        let before = self.lanes.len();
        let mut renewed = [false; LANES as usize];
        beat.census
            .held
            .iter()
            .for_each(|&lane| renewed[usize::from(lane)] = true);
        // The process may have paused between the two statements of a heartbeat. Then its leases may have expired, and
        // it may have taken its own lanes again with new epochs. Their old epochs count as lost.
        beat.gained
            .iter()
            .for_each(|taken| renewed[usize::from(taken.lane)] = false);
        self.lanes.retain(|lane| renewed[usize::from(lane.lane)]);
        self.gained.retain(|lane| renewed[usize::from(lane.lane)]);
        self.gained.extend(beat.gained);
        self.renewed = Some(beat.sent);
        let share = usize::from(fair_share(LANES, beat.census.relays, beat.census.rank));
        if self.lanes.len() < before {
            Change::Lost
        } else if self.lanes.len() + self.gained.len() > share {
            Change::Surplus(self.lanes.len() + self.gained.len() - share)
        } else if self.gained.is_empty() {
            Change::Keep
        } else {
            Change::Gained
        }
    }

    /// From now on the relay works on the lanes that it gained.
    pub(super) fn adopt_gained(&mut self) {
        self.lanes.append(&mut self.gained);
    }

    /// Releases the last `count` lanes.
    pub(super) async fn hand_back(&mut self, count: usize) -> Result<(), StoreError> {
        self.adopt_gained();
        let surplus = self.lanes.split_off(self.lanes.len().saturating_sub(count));
        self.store.release_lanes(self.relay, &surplus).await
    }

    /// Releases all lanes, so that another relay can continue at once.
    pub(super) async fn leave(&mut self) -> Result<(), StoreError> {
        self.adopt_gained();
        self.store.release_lanes(self.relay, &self.lanes).await?;
        self.lanes.clear();
        self.store.leave(self.relay).await
    }
}

impl Drop for LaneLeases {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_fair_and_cover_every_lane(relays in 1u16..400) {
            let shares: Vec<u16> = (0..relays).map(|rank| fair_share(LANES, relays, rank)).collect();
            prop_assert_eq!(shares.iter().sum::<u16>(), LANES);
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
