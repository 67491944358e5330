//! What happened lately: the counts at the latest samples of the outbox. Pure: time is an argument.

use std::{collections::VecDeque, time::Duration};

use pillarbox::lane::LANES;
use tokio::time::Instant;

/// The time that [`Recent`] looks back.
pub const RECENT: Duration = Duration::from_secs(300);
/// The time over which [`Drain`] is measured.
const DRAIN_WINDOW: Duration = Duration::from_secs(60);

/// The counts at one sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) at: Instant,
    pub(super) published: u64,
    pub(super) failed: u64,
    pub(super) dead: u64,
}

/// What happened in the last [`RECENT`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recent {
    /// Events that this relay published.
    pub published: u64,
    /// Failures that this relay counted against events.
    pub failed: u64,
    /// How many more letters are open, whoever buried the events.
    pub dead_growth: u64,
}

/// How fast the outbox drains.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Drain {
    /// Events delivered by all relays in the last minute, estimated from what this one delivers with its share of the
    /// lanes.
    pub delivered_per_second: f64,
}

/// The oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Counts>);

impl History {
    pub(super) fn push(&mut self, counts: Counts) {
        // One that is older stays: the change since then covers the whole time.
        while self.0.get(1).is_some_and(|next| counts.at - next.at >= RECENT) {
            self.0.pop_front();
        }
        self.0.push_back(counts);
    }

    pub(super) fn recent(&self) -> Recent {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else {
            return Recent::default();
        };
        Recent {
            published: last.published - first.published,
            failed: last.failed - first.failed,
            dead_growth: last.dead.saturating_sub(first.dead),
        }
    }

    /// `lanes`: those of this relay.
    pub(super) fn drain(&self, lanes: u64) -> Drain {
        let Some(last) = self.0.back() else {
            return Drain::default();
        };
        let in_window = |counts: &&Counts| last.at - counts.at <= DRAIN_WINDOW;
        let first = self.0.iter().find(in_window).unwrap_or(last);
        let seconds = (last.at - first.at).as_secs_f64();
        if seconds == 0.0 || lanes == 0 {
            return Drain::default();
        }
        let own = (last.published - first.published) as f64 / seconds;
        Drain {
            delivered_per_second: own * f64::from(LANES) / lanes as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(counts: &[(u64, u64, u64)]) -> History {
        let start = Instant::now();
        let mut history = History::default();
        for &(seconds, published, dead) in counts {
            history.push(Counts {
                at: start + Duration::from_secs(seconds),
                published,
                failed: 0,
                dead,
            });
        }
        history
    }

    #[test]
    fn only_the_last_minutes_count_as_recent() {
        assert_eq!(history(&[]).recent(), Recent::default());
        assert_eq!(
            history(&[(0, 7, 50)]).recent(),
            Recent::default(),
            "one sample shows no change"
        );
        let recent = history(&[(0, 0, 50), (150, 10, 80)]).recent();
        assert_eq!((recent.published, recent.dead_growth), (10, 30));
        let later = [
            (0, 0, 50),
            (150, 10, 80),
            (300, 10, 80),
            (450, 10, 80),
            (600, 11, 80),
        ];
        let recent = history(&later).recent();
        assert_eq!((recent.published, recent.dead_growth), (1, 0), "it was long ago");
        assert_eq!(
            history(&[(0, 0, 9), (5, 0, 2)]).recent().dead_growth,
            0,
            "letters were closed"
        );
    }

    #[test]
    fn the_rate_is_that_of_the_last_minute_and_of_all_lanes() {
        let history = history(&[(0, 0, 0), (100, 90_000, 0), (130, 90_300, 0), (160, 90_600, 0)]);
        assert_eq!(history.drain(256).delivered_per_second, 10.0);
        assert_eq!(
            history.drain(64).delivered_per_second,
            40.0,
            "with a quarter of the lanes"
        );
        assert_eq!(history.drain(0), Drain::default());
    }
}
