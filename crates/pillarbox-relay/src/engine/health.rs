//! Whether a sink, and each of its destinations, may receive events. Pure: time is an argument.
//!
//! This state outlives a tenure, so it knows nothing about jobs. The tenure knows which check or trial is running, and
//! this knowledge ends with the tenure.

use std::time::Duration;

use tokio::time::Instant;

/// The wait before the first check of a sink, or the first trial of a destination. Later waits grow up to
/// [`CHECK_WAIT_MAX`] or [`TRIAL_WAIT_MAX`]. So an outage of a sink ends within a second of the sink's return.
const WAIT_FIRST: Duration = Duration::from_millis(100);
pub(super) const CHECK_WAIT_MAX: Duration = Duration::from_secs(1);
/// The longest wait between two trials of a paused destination.
pub(super) const TRIAL_WAIT_MAX: Duration = Duration::from_secs(2);

/// The connection to a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SinkHealth {
    Up,
    /// Nothing is published until a check succeeds.
    Down {
        wait: Duration,
        next_check: Instant,
        why: String,
    },
    /// A check succeeded. Only one batch at a time is sent until one is answered, because many at once could overload
    /// the sink again.
    Recovering,
}

impl SinkHealth {
    pub(super) fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }

    /// How many batches may be in flight.
    pub(super) fn batches_max(&self, publishers_max: usize) -> usize {
        match self {
            Self::Up => publishers_max,
            Self::Recovering => 1,
            Self::Down { .. } => 0,
        }
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        match self {
            Self::Down { next_check, .. } => Some(*next_check),
            Self::Up | Self::Recovering => None,
        }
    }

    /// The connection broke. Returns whether this is new.
    pub(super) fn broke(&mut self, why: &str, now: Instant) -> bool {
        if self.is_down() {
            return false;
        }
        *self = Self::down(WAIT_FIRST, why, now);
        true
    }

    /// A check failed. Returns whether the reason is new.
    pub(super) fn check_failed(&mut self, why: &str, now: Instant) -> bool {
        let Self::Down {
            wait, why: before, ..
        } = self
        else {
            return false;
        };
        let news = before != why;
        *self = Self::down((*wait * 2).min(CHECK_WAIT_MAX), why, now);
        news
    }

    pub(super) fn check_passed(&mut self) {
        if self.is_down() {
            *self = Self::Recovering;
        }
    }

    /// A batch was answered, and the connection did not break.
    pub(super) fn answered(&mut self) {
        if *self == Self::Recovering {
            *self = Self::Up;
        }
    }

    fn down(wait: Duration, why: &str, now: Instant) -> Self {
        Self::Down {
            wait,
            next_check: now + wait,
            why: why.to_owned(),
        }
    }
}

/// The health of a destination: a stream, topic or partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DestinationHealth {
    Up,
    /// One event at a time is tried. The wait between two trials grows.
    Paused {
        since: Instant,
        wait: Duration,
        next_trial: Instant,
        why: String,
    },
}

impl DestinationHealth {
    pub(super) fn is_paused(&self) -> bool {
        matches!(self, Self::Paused { .. })
    }

    pub(super) fn paused_for(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Paused { since, .. } => Some(now.saturating_duration_since(*since)),
            Self::Up => None,
        }
    }

    pub(super) fn next_trial(&self) -> Option<Instant> {
        match self {
            Self::Paused { next_trial, .. } => Some(*next_trial),
            Self::Up => None,
        }
    }

    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Self::Paused { why, .. } => Some(why),
            Self::Up => None,
        }
    }

    /// The destination did not accept an event. Only a failed trial makes the wait longer. A batch that was sent before
    /// the pause says nothing new. Returns whether the destination was up before.
    pub(super) fn failed(&mut self, reason: &str, trial: bool, now: Instant) -> bool {
        match self {
            Self::Up => {
                *self = Self::Paused {
                    since: now,
                    wait: WAIT_FIRST,
                    next_trial: now + WAIT_FIRST,
                    why: reason.to_owned(),
                };
                true
            }
            Self::Paused {
                wait,
                next_trial,
                why,
                ..
            } => {
                if trial {
                    *wait = (*wait * 2).min(TRIAL_WAIT_MAX);
                    *next_trial = now + *wait;
                    reason.clone_into(why);
                }
                false
            }
        }
    }

    /// The destination accepted an event, or refused one because of the event itself. Returns how long it was paused.
    pub(super) fn answered(&mut self, now: Instant) -> Option<Duration> {
        let paused = self.paused_for(now);
        if paused.is_some() {
            *self = Self::Up;
        }
        paused
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In every state a sink accepts batches or has a time for its next check.
        #[test]
        fn a_sink_is_never_left_waiting_for_nothing(steps in proptest::collection::vec(0u8..5, 0..60)) {
            let mut now = Instant::now();
            let mut health = SinkHealth::Up;
            for step in steps {
                now += Duration::from_millis(137);
                match step {
                    0 => { health.broke("away", now); }
                    1 => { health.check_failed("still away", now); }
                    2 => health.check_passed(),
                    3 => health.answered(),
                    _ => {}
                }
                match health.next_check() {
                    Some(at) => prop_assert!(at <= now + CHECK_WAIT_MAX),
                    None => prop_assert!(health.batches_max(3) > 0),
                }
            }
            health.check_passed();
            health.answered();
            prop_assert_eq!(health, SinkHealth::Up);
        }

        #[test]
        fn a_paused_destination_is_tried_again_within_its_longest_wait(
            steps in proptest::collection::vec((0u8..3, any::<bool>()), 0..60),
        ) {
            let mut now = Instant::now();
            let mut health = DestinationHealth::Up;
            for (step, trial) in steps {
                now += Duration::from_millis(137);
                match step {
                    0 => { health.failed("full", trial, now); }
                    1 => { health.answered(now); }
                    _ => {}
                }
                if let Some(at) = health.next_trial() {
                    prop_assert!(at <= now + TRIAL_WAIT_MAX);
                }
            }
            health.answered(now);
            prop_assert_eq!(health, DestinationHealth::Up);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_lengthen_the_wait() {
        let now = Instant::now();
        let mut health = DestinationHealth::Up;
        assert!(health.failed("full", false, now));
        let next = health.next_trial();
        assert!(!health.failed("full", false, now));
        assert_eq!(health.next_trial(), next);
        health.failed("full", true, now);
        assert!(health.next_trial() > next);
    }
}
