//! The wait before something that failed is tried again.

use std::time::Duration;

/// Doubles from `base` with each failure up to `max`, plus or minus a quarter. `seed` decides how much, so
/// that events that failed together are not retried together.
pub(crate) fn delay(failures: u32, base: Duration, max: Duration, seed: u64) -> Duration {
    let doubled = base.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let share =
        f64::from((scattered(seed.wrapping_add(u64::from(failures))) >> 40) as u32) / f64::from(1 << 24);
    doubled.min(max).mul_f64(0.75 + share / 2.0)
}

/// Spreads neighbouring numbers far apart (the finisher of splitmix64).
fn scattered(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_delay_doubles_and_stays_near(failures in 1_u32..200, seed: u64) {
            let (base, max) = (Duration::from_secs(1), Duration::from_secs(60));
            let exact = base.saturating_mul(1 << (failures - 1).min(6)).min(max);
            let delay = delay(failures, base, max, seed);
            prop_assert!(delay >= exact.mul_f64(0.74) && delay <= exact.mul_f64(1.26), "{delay:?} of {exact:?}");
        }
    }

    #[test]
    fn events_that_failed_together_do_not_come_back_together() {
        let second = Duration::from_secs(1);
        let delays: std::collections::BTreeSet<_> =
            (0..100).map(|seed| delay(1, second, second, seed)).collect();
        assert!(delays.len() > 90, "{} different ones", delays.len());
    }
}
