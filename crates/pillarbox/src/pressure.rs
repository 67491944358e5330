//! How many events are pending, and what that means for a producer that wants to add more.
//!
//! The relay's configuration groups topics into classes. The relay writes the figures of each class next to
//! the outbox. A producer reads them in its own transaction and adds every event written since, of any class,
//! committed or not. So the estimate is never too low, even while no relay runs. (On MongoDB an
//! [`Outbox`](crate::Outbox) reads them now and then, outside of transactions, and knows only what it and its
//! clones wrote.) [`Limit::judge`] makes the decision. PostgreSQL makes it in SQL with the same formula:
//! the relay's `store/postgres/sql/schema/pressure.sql`.

use std::time::Duration;

/// The backpressure on one class of topics.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// The class's name in the relay's configuration.
    pub class: String,
    /// The number of its pending events. This is an upper bound.
    pub pending: u64,
    /// Above this, `enqueue` waits a little. `None`: never.
    pub soft: Option<u64>,
    /// From this number on, `enqueue` refuses. `None`: never.
    pub hard: Option<u64>,
    /// The age of the oldest pending event at the last measurement.
    pub oldest: Option<Duration>,
    /// How long `enqueue` would wait now. (SQLite never waits: its only writer would block all others.)
    pub delay: Duration,
    /// Whether `enqueue` would refuse now.
    pub refused: bool,
    /// If it would, when to try again.
    pub retry_after: Duration,
}

/// The limits of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// Above this, `enqueue` waits a little.
    pub soft: Option<u64>,
    /// From this number on, `enqueue` refuses.
    pub hard: Option<u64>,
    /// The longest that `enqueue` waits.
    pub max_delay: Duration,
}

/// The default if the drain rate of the backlog is unknown.
pub const RETRY_UNKNOWN: Duration = Duration::from_secs(5);
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Limit {
    /// The decision for this number of pending events. The delay grows from zero at the soft limit to the
    /// maximum at the hard limit (at twice the soft limit, if there is no hard one). `drained` is the number
    /// of events delivered per second, if known.
    pub fn judge(
        &self,
        class: &str,
        pending: u64,
        oldest: Option<Duration>,
        drained: Option<f64>,
    ) -> Pressure {
        let full = self.hard.or(self.soft.map(|soft| soft.saturating_mul(2)));
        let delay = match (self.soft, full) {
            (Some(soft), Some(full)) if pending > soft => {
                let part = (pending - soft) as f64 / full.saturating_sub(soft).max(1) as f64;
                // Whole milliseconds, as in SQL; at least one.
                let millis = (self.max_delay.as_millis() as f64 * part.min(1.0)).floor();
                Duration::from_millis((millis as u64).max(1)).min(self.max_delay)
            }
            _ => Duration::ZERO,
        };
        let target = self.soft.or(self.hard).unwrap_or_default();
        let retry_after = match drained.filter(|rate| *rate > 0.0) {
            Some(rate) => {
                let seconds = pending.saturating_sub(target) as f64 / rate;
                Duration::try_from_secs_f64(seconds)
                    .unwrap_or(RETRY_MAX)
                    .clamp(RETRY_MIN, RETRY_MAX)
            }
            None => RETRY_UNKNOWN,
        };
        Pressure {
            class: class.to_owned(),
            pending,
            soft: self.soft,
            hard: self.hard,
            oldest,
            delay,
            refused: self.hard.is_some_and(|hard| pending >= hard),
            retry_after,
        }
    }
}

/// Whether a topic matches a pattern as in NATS: tokens are separated by dots, `*` is one token, and `>` at
/// the end is all the rest (one token or more).
pub fn matches(pattern: &str, topic: &str) -> bool {
    let mut tokens = topic.split('.');
    for pattern in pattern.split('.') {
        match (pattern, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (pattern, Some(token)) if pattern == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Limit = Limit {
        soft: Some(100),
        hard: Some(200),
        max_delay: Duration::from_millis(80),
    };

    #[test]
    fn the_delay_grows_from_the_soft_limit_to_the_hard_one() {
        let delay = |pending| LIMIT.judge("c", pending, None, None).delay.as_millis();
        assert_eq!(
            [0, 100, 101, 150, 199, 200, 9_999].map(delay),
            [0, 0, 1, 40, 79, 80, 80]
        );
        assert!(!LIMIT.judge("c", 199, None, None).refused);
        assert!(LIMIT.judge("c", 200, None, None).refused);
    }

    #[test]
    fn a_class_without_limits_is_never_slowed_or_refused() {
        let pressure = Limit::default().judge("money", u64::MAX, None, None);
        assert_eq!((pressure.delay, pressure.refused), (Duration::ZERO, false));
    }

    #[test]
    fn the_retry_comes_when_the_backlog_will_be_back_at_the_soft_limit() {
        let retry = |pending, rate| LIMIT.judge("c", pending, None, rate).retry_after.as_millis();
        assert_eq!(retry(300, Some(100.0)), 2_000);
        assert_eq!(retry(300, None), 5_000);
        assert_eq!(retry(300, Some(1e9)), 250);
        assert_eq!(retry(300, Some(1e-9)), 60_000);
    }

    proptest! {
        #[test]
        fn more_pending_never_means_less_delay(soft in 1u64..1_000, more in 1u64..1_000, a in 0u64..5_000, b in 0u64..5_000) {
            let limit = Limit { soft: Some(soft), hard: Some(soft + more), max_delay: Duration::from_millis(100) };
            let (low, high) = (limit.judge("c", a.min(b), None, None), limit.judge("c", a.max(b), None, None));
            prop_assert!(low.delay <= high.delay && low.refused <= high.refused);
            prop_assert!(high.delay <= limit.max_delay);
        }
    }
}
