//! Which lanes this relay holds, and for how long it may act on that.

use std::{sync::Arc, time::Duration};

use pillarbox::lane::LANES;
use tokio::time::Instant;

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
pub(super) struct Tenancy {
    store: Arc<dyn Store>,
    relay: RelayId,
    name: String,
    lease: Duration,
    /// The lanes being worked on.
    pub(super) held: Vec<HeldLane>,
    /// Taken since: they are kept alive, and worked on from the next tenure on.
    gained: Vec<HeldLane>,
    /// Nothing is published after this. Counted from before the heartbeat was sent, on this machine's clock, so that it
    /// ends before the store's lease does, whatever the two clocks say.
    until: Instant,
}

/// What a heartbeat brought back.
pub(super) struct Beat {
    sent: Instant,
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

impl Tenancy {
    pub(super) fn new(store: Arc<dyn Store>, relay: RelayId, name: String, lease: Duration) -> Self {
        Self {
            store,
            relay,
            name,
            lease,
            held: Vec::new(),
            gained: Vec::new(),
            until: Instant::now(),
        }
    }

    /// How often to say that we live: often enough that two lost ones do no harm.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.lease / 4
    }

    /// Whether the lanes may still be acted on: with a margin for what is on its way to the broker.
    pub(super) fn is_valid(&self) -> bool {
        Instant::now() + self.lease / 10 < self.until
    }

    /// Notes how far the lanes being worked on are settled.
    pub(super) fn mark(&mut self, low_mark: Seq) {
        for lane in &mut self.held {
            lane.low_mark = lane.low_mark.max(low_mark);
        }
    }

    /// Says that we live and how far we are, and takes more lanes when the fair share allows it. The answer goes to
    /// [`Tenancy::absorb`].
    pub(super) fn beat(&self) -> impl Future<Output = Result<Beat, StoreError>> + Send + 'static {
        let (store, relay, name, lease) = (self.store.clone(), self.relay, self.name.clone(), self.lease);
        let all: Vec<HeldLane> = self.held.iter().chain(&self.gained).copied().collect();
        async move {
            let sent = Instant::now();
            let census = store.heartbeat(relay, &name, lease, &all).await?;
            let share = usize::from(fair_share(LANES, census.relays, census.rank));
            let gained = match share.saturating_sub(census.held.len()) {
                0 => Vec::new(),
                missing => store.take_lanes(relay, missing, lease).await?,
            };
            Ok(Beat { sent, census, gained })
        }
    }

    pub(super) fn absorb(&mut self, beat: Beat) -> Change {
        let before = self.held.len();
        let mut renewed = [false; LANES as usize];
        beat.census
            .held
            .iter()
            .for_each(|&lane| renewed[usize::from(lane)] = true);
        self.held.retain(|held| renewed[usize::from(held.lane)]);
        self.gained.retain(|held| renewed[usize::from(held.lane)]);
        self.gained.extend(beat.gained);
        self.until = beat.sent + self.lease;
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
