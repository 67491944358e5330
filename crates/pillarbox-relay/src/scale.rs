//! How many relays an outbox needs, for an autoscaler. Pure.

use std::time::Duration;

use serde::Serialize;

use crate::{engine::progress::Drain, store::Sample};

/// When more relays are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleLimits {
    /// One relay more for each so many pending events.
    pub pending_per_relay: u64,
    pub relays_min: u16,
    pub relays_max: u16,
}

impl Default for ScaleLimits {
    fn default() -> Self {
        Self {
            pending_per_relay: 10_000,
            relays_min: 1,
            relays_max: 10,
        }
    }
}

/// What an autoscaler asks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scale {
    /// Events that could be delivered now: pending ones. Failing, held and delayed events wait for something else than
    /// a relay.
    pub pending: u64,
    pub oldest_age_seconds: f64,
    /// Of all relays, estimated from what this one delivers with its lanes.
    pub delivered_per_second: f64,
    /// How long the pending events take at this rate. `None`: nothing is delivered now.
    pub drain_seconds: Option<f64>,
    pub relays: u16,
    pub desired_relays: u16,
}

/// `None`: the relay has not looked at the outbox yet.
pub fn scale(sample: Option<&(Sample, Duration)>, drain: Drain, limits: &ScaleLimits) -> Option<Scale> {
    let (sample, _) = sample?;
    let rate = drain.delivered_per_second;
    Some(Scale {
        pending: sample.pending,
        oldest_age_seconds: sample.oldest_age.unwrap_or_default().as_secs_f64(),
        delivered_per_second: rate,
        drain_seconds: match sample.pending {
            0 => Some(0.0),
            pending => (rate > 0.0).then(|| pending as f64 / rate),
        },
        relays: sample.relays,
        desired_relays: desired(sample.pending, limits),
    })
}

fn desired(pending: u64, limits: &ScaleLimits) -> u16 {
    let wanted = pending.div_ceil(limits.pending_per_relay.max(1));
    let wanted = u16::try_from(wanted).unwrap_or(u16::MAX);
    wanted.min(limits.relays_max).max(limits.relays_min)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(pending: u64) -> (Sample, Duration) {
        let sample = Sample {
            pending,
            oldest_age: Some(Duration::from_millis(2_500)),
            relays: 2,
            ..Sample::default()
        };
        (sample, Duration::ZERO)
    }

    fn at(delivered_per_second: f64) -> Drain {
        Drain { delivered_per_second }
    }

    #[test]
    fn more_pending_events_want_more_relays_within_the_limits() {
        let limits = ScaleLimits {
            relays_min: 2,
            ..ScaleLimits::default()
        };
        let desired = |pending| super::desired(pending, &limits);
        assert_eq!(desired(0), 2);
        assert_eq!(desired(20_000), 2);
        assert_eq!(desired(20_001), 3);
        assert_eq!(desired(99_999), 10);
        assert_eq!(desired(u64::MAX), 10);
    }

    #[test]
    fn the_drain_time_is_the_backlog_at_the_present_rate() {
        let limits = ScaleLimits::default();
        let found = scale(Some(&sample(3_000)), at(1_500.0), &limits).unwrap();
        assert_eq!(found.drain_seconds, Some(2.0));
        assert_eq!((found.oldest_age_seconds, found.relays), (2.5, 2));
        let stuck = scale(Some(&sample(3_000)), at(0.0), &limits).unwrap();
        assert_eq!(stuck.drain_seconds, None, "it never ends at this rate");
        let idle = scale(Some(&sample(0)), at(0.0), &limits).unwrap();
        assert_eq!(idle.drain_seconds, Some(0.0));
        assert_eq!(scale(None, at(1.0), &limits), None);
    }

    proptest! {
        #[test]
        fn it_never_leaves_its_limits_and_never_falls_when_more_waits(
            pending in any::<u64>(), more in any::<u64>(), per in 0..1_000_000_u64, min in 0..50_u16, span in 0..50_u16
        ) {
            let limits = ScaleLimits { pending_per_relay: per, relays_min: min, relays_max: min + span };
            let now = desired(pending, &limits);
            prop_assert!((min..=min + span).contains(&now));
            prop_assert!(desired(pending.saturating_add(more), &limits) >= now);
        }
    }
}
