//! How far behind a consumer is.

use std::time::Duration;

use crate::event::EventId;

/// The state of a consumer. See [`Handle::lag`](super::Handle::lag).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// Events at the broker that this consumer has not read yet, if known.
    pub waiting: Option<u64>,
    /// Events in memory: running, or waiting for their turn.
    pub held: usize,
    /// Of these, the ones with a running handler.
    pub in_flight: usize,
    /// Keys that wait because their first event failed.
    pub failing: usize,
    /// The event that has been failing for the longest time.
    pub oldest_failing: Option<Failing>,
    /// The database does not answer: nothing continues, and no event is charged.
    pub database_away: bool,
}

/// An event that fails and holds back its key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failing {
    /// Its id. `None` for a message that is not an event.
    pub event_id: Option<EventId>,
    /// The key that waits for it.
    pub key: String,
    /// How often it was tried.
    pub attempts: u32,
    /// How long ago it first failed.
    pub since: Duration,
    /// Its last error.
    pub error: String,
}

impl Lag {
    /// Everything that is not processed yet, as far as it is known.
    pub fn total(&self) -> u64 {
        self.waiting.unwrap_or(0) + self.held as u64
    }
}

/// Whether the lag changed enough for a log line: it doubled or halved, and is or was large.
pub(super) fn is_news(told: u64, now: u64) -> bool {
    const LARGE: u64 = 1_000;
    let (less, more) = (told.min(now), told.max(now));
    more >= LARGE && more >= less.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_news_when_it_changed_a_lot() {
        assert!(is_news(0, 1_000) && is_news(5_000, 10_000) && is_news(10_000, 4_000));
        assert!(!is_news(0, 900) && !is_news(5_000, 9_000) && !is_news(0, 0));
    }
}
