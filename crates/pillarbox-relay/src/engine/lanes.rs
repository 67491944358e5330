//! Which lanes this relay holds, and for how long it may act on that.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use pillarbox::lane::LANES;
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    event::Seq,
    store::{Census, HeldLane, RelayId, Store, StoreError},
};

/// How many of `lanes` the relay of this rank is to hold, so that all lanes are held and nobody has two more than another.
pub fn fair_share(lanes: u16, relays: u16, rank: u16) -> u16 {
    let relays = relays.max(1);
    lanes / relays + u16::from(rank < lanes % relays)
}

/// The lanes held, and the deadline that goes with them.
pub(super) struct LaneLeases {
    store: Arc<dyn Store>,
    relay: RelayId,
    name: String,
    lease: Duration,
    /// The lanes being worked on.
    pub(super) held: Vec<HeldLane>,
    /// Taken since: they are kept alive, and worked on from the next tenure on.
    gained: Vec<HeldLane>,
    /// When the last heartbeat that succeeded was sent. Nothing is published later than a lease after it, so that we stop before
    /// the store's lease ends, whatever the store's clock says.
    renewed: Option<Moment>,
    /// A heartbeat on its way. It belongs here and not to a tenure: the lanes it takes must not be forgotten when a tenure ends.
    beating: Option<Beating>,
}

struct Beating {
    task: JoinHandle<Result<Beat, StoreError>>,
    since: Instant,
}

/// A moment on both of this machine's clocks. One of them may stand still: the monotonic one while the machine is suspended,
/// the other when it is set back.
#[derive(Clone, Copy)]
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// By the clock that went further.
    fn elapsed(self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        self.monotonic.elapsed().max(wall)
    }
}

/// What a heartbeat brought back.
pub(super) struct Beat {
    sent: Moment,
    census: Census,
    gained: Vec<HeldLane>,
}

/// What a heartbeat asks the relay to do about its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Keep,
    /// More lanes were taken.
    Gained,
    /// This many are to be handed back.
    Surplus(usize),
    /// Some were lost to another relay; they are no longer in `held`.
    Lost,
}

impl LaneLeases {
    pub(super) fn new(store: Arc<dyn Store>, relay: RelayId, name: String, lease: Duration) -> Self {
        Self {
            store,
            relay,
            name,
            lease,
            held: Vec::new(),
            gained: Vec::new(),
            renewed: None,
            beating: None,
        }
    }

    pub(super) fn relay(&self) -> RelayId {
        self.relay
    }

    /// How often to say that we live: often enough that two lost ones do no harm.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.lease / 4
    }

    /// Whether the lanes may still be acted on: with a margin for what is on its way to the broker.
    pub(super) fn is_valid(&self) -> bool {
        self.renewed
            .is_some_and(|renewed| renewed.elapsed() + self.lease / 10 < self.lease)
    }

    /// Notes how far the lanes being worked on are settled.
    pub(super) fn mark(&mut self, low_mark: Seq) {
        for lane in &mut self.held {
            lane.low_mark = lane.low_mark.max(low_mark);
        }
    }

    /// Says that we live and how far we are, and takes more lanes when the fair share allows it, unless that is on its way.
    /// The answer comes from [`LaneLeases::beaten`] and goes to [`LaneLeases::absorb`].
    pub(super) fn start_beat(&mut self) {
        if self.beating.is_some() {
            return;
        }
        let (store, relay, name, lease) = (self.store.clone(), self.relay, self.name.clone(), self.lease);
        let all: Vec<HeldLane> = self.held.iter().chain(&self.gained).copied().collect();
        let task = tokio::spawn(async move {
            let sent = Moment::now();
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

    /// The answer to the heartbeat on its way. Never ends when there is none.
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

    /// Gives up a heartbeat that does not end, and all lanes: they run out by themselves and are taken anew.
    pub(super) fn forget(&mut self) {
        if let Some(beating) = self.beating.take() {
            beating.task.abort();
        }
        self.held.clear();
        self.gained.clear();
    }

    pub(super) fn absorb(&mut self, beat: Beat) -> Change {
        let before = self.held.len();
        let mut renewed = [false; LANES as usize];
        beat.census
            .held
            .iter()
            .for_each(|&lane| renewed[usize::from(lane)] = true);
        // A relay that stood still between the two halves of a heartbeat may have taken its own lanes anew, as their leases
        // were over: under their old epochs they are lost.
        beat.gained
            .iter()
            .for_each(|taken| renewed[usize::from(taken.lane)] = false);
        self.held.retain(|held| renewed[usize::from(held.lane)]);
        self.gained.retain(|held| renewed[usize::from(held.lane)]);
        self.gained.extend(beat.gained);
        self.renewed = Some(beat.sent);
        let share = usize::from(fair_share(LANES, beat.census.relays, beat.census.rank));
        if self.held.len() < before {
            Change::Lost
        } else if self.held.len() + self.gained.len() > share {
            Change::Surplus(self.held.len() + self.gained.len() - share)
        } else if self.gained.is_empty() {
            Change::Keep
        } else {
            Change::Gained
        }
    }

    /// What was gained is worked on from now on.
    pub(super) fn settle_in(&mut self) {
        self.held.append(&mut self.gained);
    }

    /// Hands back the last `count` lanes.
    pub(super) async fn hand_back(&mut self, count: usize) -> Result<(), StoreError> {
        self.settle_in();
        let surplus = self.held.split_off(self.held.len().saturating_sub(count));
        self.store.release_lanes(self.relay, &surplus).await
    }

    /// Gives everything up: another relay may go on at once.
    pub(super) async fn leave(&mut self) -> Result<(), StoreError> {
        self.settle_in();
        self.store.release_lanes(self.relay, &self.held).await?;
        self.held.clear();
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
