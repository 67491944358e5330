//! Decides what the kind of an error means.
//!
//! The sink chooses the kind (`sink/*/outcome.rs`). `engine/sink_slot.rs` decides whether a missing answer may be
//! charged, and when an outage is too long.

use crate::{
    retry::RetryPolicy,
    settlement::DeadReason,
    sink::{SinkError, SinkErrorKind},
};

/// What to do about a failed event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The sink is away. Pause it and check it again with backoff. Count nothing.
    SinkDown,
    /// The event's destination accepts nothing. Pause it and try one event now and then. Count nothing.
    DestinationDown,
    /// This event failed. Count the attempt and try again later.
    Retry,
    /// This event will never be delivered.
    Reject(DeadReason),
    /// The configuration is wrong. Report it and stop.
    Stop,
}

/// What an error at a sink means.
///
/// An event is charged only for its own faults. A missing or unclear answer is the event's own failure only if the same
/// destination accepted a later event of the same batch (`later_delivered`). `attempts` includes this one.
pub fn judge(error: &SinkError, later_delivered: bool, attempts: u32, attempts_max: u32) -> Verdict {
    use SinkErrorKind as Kind;
    match error.kind {
        Kind::Unreachable => Verdict::SinkDown,
        Kind::Unavailable | Kind::MissingStream | Kind::Full | Kind::NotGranted => Verdict::DestinationDown,
        Kind::Timeout | Kind::Unclear if !later_delivered => Verdict::DestinationDown,
        Kind::Timeout => retry_or(DeadReason::ProcessingTimeout, attempts, attempts_max),
        Kind::Busy | Kind::Unclear => retry_or(DeadReason::MaxRetriesExceeded, attempts, attempts_max),
        Kind::Invalid => Verdict::Reject(DeadReason::PoisonMessage),
        Kind::TooLarge | Kind::Refused => Verdict::Reject(DeadReason::PermanentFailure),
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

/// The limit of attempts for one event: its own, or the policy's.
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

    fn verdict(kind: SinkErrorKind, later_delivered: bool, attempts: u32) -> Verdict {
        judge(&SinkError::new(kind, "x"), later_delivered, attempts, 5)
    }

    #[test]
    fn faults_of_a_sink_or_a_destination_are_never_charged() {
        use SinkErrorKind::*;
        for later in [false, true] {
            assert_eq!(verdict(Unreachable, later, 99), Verdict::SinkDown);
            for kind in [Unavailable, MissingStream, Full, NotGranted] {
                assert_eq!(verdict(kind, later, 99), Verdict::DestinationDown, "{kind:?}");
            }
        }
        for kind in [Timeout, Unclear] {
            assert_eq!(verdict(kind, false, 99), Verdict::DestinationDown, "{kind:?}");
        }
    }

    #[test]
    fn a_failing_event_is_retried_until_its_limit() {
        use SinkErrorKind::*;
        for kind in [Timeout, Busy, Unclear] {
            assert_eq!(verdict(kind, true, 4), Verdict::Retry, "{kind:?}");
            assert!(matches!(verdict(kind, true, 5), Verdict::Reject(_)), "{kind:?}");
        }
        assert_eq!(
            verdict(Timeout, true, 5),
            Verdict::Reject(DeadReason::ProcessingTimeout)
        );
    }

    #[test]
    fn an_undeliverable_event_is_rejected_at_once() {
        use SinkErrorKind::*;
        for kind in [Invalid, TooLarge, Refused] {
            assert!(matches!(verdict(kind, true, 1), Verdict::Reject(_)), "{kind:?}");
        }
        assert_eq!(verdict(Misconfigured, true, 1), Verdict::Stop);
    }
}
