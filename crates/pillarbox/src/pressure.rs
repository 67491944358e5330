//! How much waits to be delivered, and what that means for who wants to add to it.
//!
//! Topics are grouped into classes by the relay's configuration. The relay writes each class's figures down beside the
//! outbox; whoever enqueues reads them in his own transaction and adds what was written since, whether or not its transaction
//! committed and whatever its class: an estimate that is never too low, also while no relay runs. (On MongoDB an
//! [`Outbox`](crate::Outbox) reads them now and then, outside of transactions, and knows only what it and its clones wrote.)
//! [`Limit::judge`] is the decision. PostgreSQL makes it in SQL, by the same formula: `schema_pressure.sql` of the relay.

use std::time::Duration;

/// How the outbox stands for one class of topics.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// The class's name in the relay's configuration.
    pub class: String,
    /// How many of its events wait, at most.
    pub pending: u64,
    /// Above this, `enqueue` waits a little. `None`: never.
    pub soft: Option<u64>,
    /// From this on, `enqueue` refuses. `None`: never.
    pub hard: Option<u64>,
    /// How long the oldest had waited when it was last looked at.
    pub oldest: Option<Duration>,
    /// What `enqueue` would wait now. (SQLite never does: its one writer would keep all others waiting.)
    pub delay: Duration,
    /// Whether `enqueue` would refuse now.
    pub refused: bool,
    /// If it does, when to try again.
    pub retry_after: Duration,
}

/// How much may wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// Above this, `enqueue` waits a little.
    pub soft: Option<u64>,
    /// From this on, `enqueue` refuses.
    pub hard: Option<u64>,
    /// The longest that `enqueue` waits.
    pub max_delay: Duration,
}

/// When nothing is known of how fast the backlog shrinks.
pub const RETRY_UNKNOWN: Duration = Duration::from_secs(5);
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);

impl Limit {
    /// What so many pending events mean. The delay grows from nothing at the soft limit to the longest at the hard one (at
    /// twice the soft one, where there is no hard one); `drained` is how many events a second go out, where it is known.
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
                // Whole milliseconds, as SQL has them; at least one.
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

/// Whether a topic matches a pattern as in NATS: tokens between dots, `*` is one of them, `>` at the end is all the rest (one
/// or more).
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
