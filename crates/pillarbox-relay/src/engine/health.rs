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
/// The longest wait between two trials of a paused destination, unless it asks for a longer one.
pub(super) const TRIAL_WAIT_MAX: Duration = Duration::from_secs(2);
/// The longest wait that a destination can ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// A destination that is surely at fault again within this time continues with the waits of its last pause. Otherwise a
/// constant rate limit would be tried ten times a second.
const WORKS_AFTER: Duration = Duration::from_secs(10);

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

/// Why a destination accepted nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Fault {
    pub(super) why: String,
    /// The longest wait that it asked for.
    pub(super) retry_after: Option<Duration>,
    /// An event may be the reason, and the destination may work.
    pub(super) may_be_the_event: bool,
}

/// The health of a destination: a stream, topic or partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DestinationHealth {
    Up {
        /// The last wait of the latest pause, and when the pause ended.
        before: Option<(Duration, Instant)>,
    },
    /// One event at a time is tried. The wait between two trials grows.
    Paused {
        since: Instant,
        wait: Duration,
        next_trial: Instant,
        /// The destination asked for no event before this time. The answer to a batch from before the pause does not
        /// end the pause earlier.
        not_before: Option<Instant>,
        why: String,
    },
}

impl Default for DestinationHealth {
    fn default() -> Self {
        Self::Up { before: None }
    }
}

impl DestinationHealth {
    pub(super) fn is_paused(&self) -> bool {
        matches!(self, Self::Paused { .. })
    }

    pub(super) fn paused_for(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Paused { since, .. } => Some(now.saturating_duration_since(*since)),
            Self::Up { .. } => None,
        }
    }

    pub(super) fn next_trial(&self) -> Option<Instant> {
        match self {
            Self::Paused { next_trial, .. } => Some(*next_trial),
            Self::Up { .. } => None,
        }
    }

    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Self::Paused { why, .. } => Some(why),
            Self::Up { .. } => None,
        }
    }

    /// The destination did not accept an event. Only a failed trial makes the wait longer. A batch that was sent before
    /// the pause says nothing new. Of several waits that the destination asks for, the longest counts. Returns
    /// whether the destination was up before.
    pub(super) fn failed(&mut self, fault: &Fault, trial: bool, now: Instant) -> bool {
        let asked = fault.retry_after.map(|wait| now + wait.min(RETRY_AFTER_MAX));
        match self {
            Self::Up { before } => {
                let lately = |ended| now.saturating_duration_since(ended) < WORKS_AFTER;
                let lately = before.filter(|(_, ended)| !fault.may_be_the_event && lately(*ended));
                let wait = lately.map_or(WAIT_FIRST, |(wait, _)| (wait * 2).min(TRIAL_WAIT_MAX));
                *self = Self::Paused {
                    since: now,
                    wait,
                    next_trial: asked.map_or(now + wait, |asked| asked.max(now + wait)),
                    not_before: asked,
                    why: fault.why.clone(),
                };
                true
            }
            Self::Paused {
                wait,
                next_trial,
                not_before,
                why,
                ..
            } => {
                if trial {
                    *wait = (*wait * 2).min(TRIAL_WAIT_MAX);
                    *next_trial = now + *wait;
                    fault.why.clone_into(why);
                }
                if let Some(asked) = asked {
                    *not_before = Some(not_before.map_or(asked, |before| before.max(asked)));
                    *next_trial = (*next_trial).max(asked);
                }
                false
            }
        }
    }

    /// The destination accepted an event, or refused one because of the event itself. Returns how long it was paused,
    /// if the pause ends.
    pub(super) fn answered(&mut self, now: Instant) -> Option<Duration> {
        match *self {
            Self::Paused {
                since,
                wait,
                not_before,
                ..
            } if not_before.is_none_or(|at| at <= now) => {
                let before = Some((wait, now));
                *self = Self::Up { before };
                Some(now.saturating_duration_since(since))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fault(retry_after: Option<Duration>) -> Fault {
        Fault {
            why: "full".into(),
            retry_after,
            ..Fault::default()
        }
    }

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
            steps in proptest::collection::vec((0u8..4, any::<bool>(), 0u64..1_000), 0..60),
        ) {
            let mut now = Instant::now();
            let mut health = DestinationHealth::default();
            let mut asked_until = now;
            for (step, trial, asked) in steps {
                now += Duration::from_millis(137);
                match step {
                    0 => { health.failed(&fault(None), trial, now); }
                    1 => {
                        let asked = Duration::from_secs(asked);
                        health.failed(&fault(Some(asked)), trial, now);
                        asked_until = asked_until.max(now + asked.min(RETRY_AFTER_MAX));
                    }
                    2 => { health.answered(now); }
                    _ => {}
                }
                if let Some(at) = health.next_trial() {
                    prop_assert!(at <= asked_until.max(now + TRIAL_WAIT_MAX));
                }
            }
            health.answered(asked_until.max(now));
            prop_assert!(!health.is_paused());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_lengthen_the_wait() {
        let now = Instant::now();
        let mut health = DestinationHealth::default();
        assert!(health.failed(&fault(None), false, now));
        let next = health.next_trial();
        assert!(!health.failed(&fault(None), false, now));
        assert_eq!(health.next_trial(), next);
        health.failed(&fault(None), true, now);
        assert!(health.next_trial() > next);
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_is_not_tried_before_it_asked_for() {
        let mut now = Instant::now();
        let mut health = DestinationHealth::default();
        health.failed(&fault(Some(Duration::from_secs(30))), false, now);
        assert_eq!(health.next_trial(), Some(now + Duration::from_secs(30)));
        now += Duration::from_secs(1);
        assert_eq!(health.answered(now), None, "a batch from before the pause");
        health.failed(&fault(Some(Duration::from_secs(5))), false, now);
        assert_eq!(
            health.next_trial(),
            Some(now + Duration::from_secs(29)),
            "the longest"
        );
        health.failed(&fault(Some(Duration::from_secs(86_400))), false, now);
        assert_eq!(health.next_trial(), Some(now + RETRY_AFTER_MAX));
        assert!(health.answered(now + RETRY_AFTER_MAX).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn short_pauses_in_a_row_become_longer_until_the_destination_has_worked_for_a_while() {
        let mut now = Instant::now();
        let mut health = DestinationHealth::default();
        let mut pause = |now: &mut Instant, works: Duration| {
            health.failed(&fault(None), false, *now);
            let wait = health.next_trial().unwrap() - *now;
            *now += wait;
            health.answered(*now);
            *now += works;
            wait.as_millis()
        };
        let waits: Vec<u128> = (0..7)
            .map(|_| pause(&mut now, Duration::from_millis(1)))
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        pause(&mut now, WORKS_AFTER);
        assert_eq!(pause(&mut now, Duration::ZERO), 100);
        // A bad event between good ones must not slow them down.
        let of_an_event = Fault {
            may_be_the_event: true,
            ..fault(None)
        };
        health.failed(&of_an_event, false, now);
        assert_eq!(health.next_trial(), Some(now + WAIT_FIRST));
    }
}
