//! How long a failing event waits.

use std::time::Duration;

use pillarbox::RetryOverrides;

/// The defaults. An event may override each.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    pub attempts_max: u32,
    /// Events are retried without a limit. Only an event that can never be delivered dies.
    pub for_ever: bool,
    pub base_delay: Duration,
    pub max_delay: Duration,
    pub multiplier: f64,
    /// The delay is multiplied by a number between these two.
    pub jitter: (f64, f64),
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            for_ever: false,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            multiplier: 2.0,
            jitter: (0.75, 1.25),
        }
    }
}

impl RetryPolicy {
    /// How long to wait after failure number `attempts` (from 1). `chance` is between 0 and 1 and selects the jitter.
    pub fn delay(&self, attempts: u32, retry: &RetryOverrides, chance: f64) -> Duration {
        let base = retry.base_delay_ms.map_or(self.base_delay, millis).as_secs_f64();
        let max = retry.max_delay_ms.map_or(self.max_delay, millis).as_secs_f64();
        let multiplier = retry.backoff_multiplier.unwrap_or(self.multiplier);
        let exponent = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let delay = (base * multiplier.powi(exponent)).min(max);
        let (low, high) = self.jitter;
        Duration::try_from_secs_f64(delay * (low + (high - low) * chance)).unwrap_or(self.max_delay)
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_second_doubles_up_to_a_minute() {
        let policy = RetryPolicy::default();
        let seconds = |n| policy.delay(n, &RetryOverrides::default(), 0.5).as_secs_f64();
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 100].map(seconds),
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        );
    }

    #[test]
    fn an_event_overrides_the_policy() {
        let own = RetryOverrides::default()
            .base_delay_ms(10)
            .max_delay_ms(50)
            .backoff_multiplier(3.0);
        let ms = |n| RetryPolicy::default().delay(n, &own, 0.5).as_millis();
        assert_eq!([1, 2, 3].map(ms), [10, 30, 50]);
    }

    proptest! {
        #[test]
        fn jitter_stays_within_a_quarter(attempts in 1u32..10_000, chance in 0.0f64..1.0) {
            let policy = RetryPolicy::default();
            let middle = policy.delay(attempts, &RetryOverrides::default(), 0.5).as_secs_f64();
            let delay = policy.delay(attempts, &RetryOverrides::default(), chance).as_secs_f64();
            prop_assert!(delay >= 0.7499 * middle && delay <= 1.2501 * middle);
        }
    }
}
