//! The one place that decides what an error means.

use crate::{
    retry::RetryPolicy,
    settlement::DeadReason,
    sink::{SinkError, SinkErrorKind},
};

/// What to do about a failed event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The sink is away: pause it, try again with backoff, count nothing.
    Down,
    /// This event failed: count the attempt and wait.
    Retry,
    /// This event will never be delivered.
    Reject(DeadReason),
    /// The configuration is wrong: say so and stop.
    Stop,
}

/// How the sink behaves apart from this event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkHealth {
    /// It took other events just now, or answered a check after this one failed.
    Answers,
    /// It did not.
    Silent,
}

/// What an error at a sink means.
///
/// No answer, or nobody to take the event, is an outage while the sink is silent; when it takes other events it is
/// this event's own failure. `attempts` counts this one.
pub fn judge(error: &SinkError, health: SinkHealth, attempts: u32, attempts_max: u32) -> Verdict {
    use SinkErrorKind as Kind;
    match error.kind {
        Kind::Unreachable => Verdict::Down,
        Kind::Unavailable | Kind::Timeout if health == SinkHealth::Silent => Verdict::Down,
        Kind::Timeout => retry_or(DeadReason::ProcessingTimeout, attempts, attempts_max),
        Kind::Unavailable | Kind::Busy => retry_or(DeadReason::MaxRetriesExceeded, attempts, attempts_max),
        Kind::Invalid => Verdict::Reject(DeadReason::PoisonMessage),
        Kind::TooLarge | Kind::Refused => Verdict::Reject(DeadReason::PermanentFailure),
        // Both can be mended while the relay runs (`streams apply`, a grant), and stopping in the middle of the
        // night because of one route would hold up every other: they wait like any failing event.
        Kind::MissingStream => retry_or(DeadReason::MaxRetriesExceeded, attempts, attempts_max),
        Kind::Misconfigured => Verdict::Stop,
    }
}

fn retry_or(reason: DeadReason, attempts: u32, attempts_max: u32) -> Verdict {
    if attempts < attempts_max {
        Verdict::Retry
    } else {
        Verdict::Reject(reason)
    }
}

/// The limit for one event: its own, or the policy's.
pub fn attempts_max(policy: &RetryPolicy, retry: &pillarbox::RetryOverrides) -> u32 {
    if policy.for_ever {
        return u32::MAX;
    }
    retry
        .max_attempts
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(policy.attempts_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(kind: SinkErrorKind, health: SinkHealth, attempts: u32) -> Verdict {
        judge(&SinkError::new(kind, "x"), health, attempts, 5)
    }

    #[test]
    fn an_outage_is_not_a_failure() {
        use SinkErrorKind::*;
        for kind in [Unreachable, Unavailable, Timeout] {
            assert_eq!(verdict(kind, SinkHealth::Silent, 99), Verdict::Down, "{kind:?}");
        }
        assert_eq!(verdict(Unreachable, SinkHealth::Answers, 1), Verdict::Down);
    }

    #[test]
    fn a_failing_event_is_retried_until_its_limit() {
        use SinkErrorKind::*;
        for kind in [Unavailable, Timeout, Busy, MissingStream] {
            assert_eq!(verdict(kind, SinkHealth::Answers, 4), Verdict::Retry, "{kind:?}");
            assert!(
                matches!(verdict(kind, SinkHealth::Answers, 5), Verdict::Reject(_)),
                "{kind:?}"
            );
        }
        assert_eq!(
            verdict(Timeout, SinkHealth::Answers, 5),
            Verdict::Reject(DeadReason::ProcessingTimeout)
        );
    }

    #[test]
    fn what_can_never_arrive_is_rejected_at_once() {
        use SinkErrorKind::*;
        for kind in [Invalid, TooLarge, Refused] {
            assert!(
                matches!(verdict(kind, SinkHealth::Answers, 1), Verdict::Reject(_)),
                "{kind:?}"
            );
        }
        assert_eq!(verdict(Misconfigured, SinkHealth::Answers, 1), Verdict::Stop);
    }
}
