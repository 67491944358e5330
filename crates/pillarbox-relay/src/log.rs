//! The log lines about single events. docs/LOGS.md lists them with their fields.
//!
//! The message is the name of the line. No line contains a payload or a header.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{
    dead::fingerprint,
    event::StoredEvent,
    settlement::{Dead, DeadReason},
    sink::{SinkError, SinkErrorKind},
};

/// After a line about a failure, further failures with its fingerprint are only counted for this time.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// More kinds than this at once share one place, so that memory stays bounded.
const KINDS_MAX: usize = 200;
const OTHER_KINDS: &str = "other";

/// Discovery read an event, which any program may have written. The crate `pillarbox` logs the same where it writes
/// an event.
pub(crate) fn discovered(stored: &StoredEvent) {
    let event = &stored.event;
    tracing::debug!(
        event_id = %event.id,
        event_type = event.event_type,
        aggregate_type = event.aggregate_type,
        aggregate_id = event.aggregate_id,
        topic = event.topic,
        "outbox_event_enqueued"
    );
}

/// A sink stored an event. `attempt` counts from 1.
pub(crate) fn published(stored: &StoredEvent, sink: &str) {
    let event = &stored.event;
    tracing::debug!(
        event_id = %event.id,
        event_type = event.event_type,
        aggregate_type = event.aggregate_type,
        aggregate_id = event.aggregate_id,
        sink,
        attempt = stored.attempts + 1,
        "outbox_publish_succeeded"
    );
}

/// An event is dead, and the database has its letter.
pub(crate) fn dead_lettered(dead: &Dead) {
    let subject = dead.subject.as_ref();
    tracing::error!(
        seq = dead.seq,
        event_id = subject.map(|subject| tracing::field::display(&subject.id)),
        event_type = subject.map(|subject| subject.event_type.as_str()),
        aggregate_type = subject.map(|subject| subject.aggregate_type.as_str()),
        aggregate_id = subject.map(|subject| subject.aggregate_id.as_str()),
        sink = dead.failure.sink.as_deref(),
        attempt = dead.attempts,
        reason = dead.reason.as_str(),
        fingerprint = dead.fingerprint(),
        error = dead.failure.error,
        "outbox_event_dead_lettered"
    );
}

/// Decides which failures of a sink are logged: the first of each fingerprint, then one in [`SAMPLE_EVERY`].
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Sampler);

/// Decides which of many similar things are logged: the first of each kind, then one in [`SAMPLE_EVERY`].
#[derive(Debug, Default)]
pub struct Sampler {
    seen: HashMap<String, Seen>,
}

#[derive(Debug)]
struct Seen {
    logged: Instant,
    /// Failures since then.
    silent: u64,
}

impl FailureLog {
    /// An attempt failed, and it was counted. The event waits for `retry_in`.
    pub(crate) fn failed(
        &mut self,
        stored: &StoredEvent,
        sink: &str,
        error: &SinkError,
        retry_in: Duration,
        now: Instant,
    ) {
        // The one that its dead letter would have, so that people can compare them.
        let reason = match error.kind {
            SinkErrorKind::Timeout => DeadReason::ProcessingTimeout,
            _ => DeadReason::MaxRetriesExceeded,
        };
        let fingerprint = fingerprint(reason, Some(sink), &error.message);
        let Some(not_logged) = self.0.next(&fingerprint, now) else {
            return;
        };
        let event = &stored.event;
        tracing::warn!(
            event_id = %event.id,
            event_type = event.event_type,
            aggregate_type = event.aggregate_type,
            aggregate_id = event.aggregate_id,
            sink,
            attempt = stored.attempts + 1,
            retry_in_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX),
            fingerprint,
            not_logged,
            error = error.message,
            "outbox_publish_failed"
        );
    }
}

impl Sampler {
    /// Returns how many of this kind were not logged since the last line, if this one must be logged.
    pub fn next(&mut self, kind: &str, now: Instant) -> Option<u64> {
        if !self.seen.contains_key(kind) && self.seen.len() >= KINDS_MAX {
            self.seen
                .retain(|_, seen| now.saturating_duration_since(seen.logged) < SAMPLE_EVERY);
        }
        let full = !self.seen.contains_key(kind) && self.seen.len() >= KINDS_MAX;
        let place = if full { OTHER_KINDS } else { kind };
        match self.seen.get_mut(place) {
            Some(seen) if now.saturating_duration_since(seen.logged) < SAMPLE_EVERY => {
                seen.silent += 1;
                None
            }
            Some(seen) => {
                seen.logged = now;
                Some(std::mem::take(&mut seen.silent))
            }
            None => {
                let seen = Seen {
                    logged: now,
                    silent: 0,
                };
                self.seen.insert(place.to_owned(), seen);
                Some(0)
            }
        }
    }
}

/// Decides which pauses of one destination are logged: one in [`SAMPLE_EVERY`], and each that lasts that long. The end
/// of a pause is logged if its beginning was.
#[derive(Debug, Default)]
pub(crate) struct PauseLog {
    logged: Option<Instant>,
    /// The current pause was logged.
    said: bool,
    /// Pauses since the last line.
    pauses: u64,
}

impl PauseLog {
    /// The destination is paused. `is_new`: it was not paused before. Returns how many pauses were not logged since the
    /// last line, if this one must be logged.
    pub(crate) fn paused(&mut self, is_new: bool, now: Instant) -> Option<u64> {
        if is_new {
            self.said = false;
            self.pauses += 1;
        }
        let lately = |at| now.saturating_duration_since(at) < SAMPLE_EVERY;
        if self.said || self.logged.is_some_and(lately) {
            return None;
        }
        (self.said, self.logged) = (true, Some(now));
        Some(std::mem::take(&mut self.pauses).saturating_sub(1))
    }

    /// The pause is over. Returns whether this must be logged.
    pub(crate) fn resumed(&mut self) -> bool {
        std::mem::take(&mut self.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_fingerprint_and_interval_with_the_number_of_the_others() {
        let mut log = Sampler::default();
        let start = Instant::now();
        assert_eq!(log.next("a", start), Some(0));
        assert_eq!(log.next("a", start + SAMPLE_EVERY / 2), None);
        assert_eq!(
            log.next("b", start + SAMPLE_EVERY / 2),
            Some(0),
            "another failure"
        );
        assert_eq!(log.next("a", start + SAMPLE_EVERY), Some(1));
        assert_eq!(log.next("a", start + SAMPLE_EVERY * 3), Some(0));
    }

    #[test]
    fn a_flood_of_fingerprints_keeps_memory_bounded_and_is_still_logged() {
        let mut log = Sampler::default();
        let start = Instant::now();
        let logged = (0..5 * KINDS_MAX)
            .filter(|n| log.next(&n.to_string(), start).is_some())
            .count();
        assert_eq!(logged, KINDS_MAX + 1, "the others share a line");
        assert!(log.seen.len() <= KINDS_MAX + 1);
        assert_eq!(
            log.next("new", start + SAMPLE_EVERY),
            Some(0),
            "old fingerprints make room"
        );
    }

    #[test]
    fn short_pauses_in_a_row_are_logged_once_in_a_while_and_a_long_one_always() {
        let mut log = PauseLog::default();
        let start = Instant::now();
        assert_eq!(log.paused(true, start), Some(0));
        assert_eq!(log.paused(false, start), None, "a further failure");
        assert!(log.resumed());
        for second in 1..5 {
            assert_eq!(log.paused(true, start + Duration::from_secs(second)), None);
            assert!(!log.resumed());
        }
        assert_eq!(log.paused(true, start + Duration::from_secs(5)), None);
        assert_eq!(log.paused(false, start + SAMPLE_EVERY), Some(4), "it lasts");
        assert_eq!(log.paused(false, start + SAMPLE_EVERY * 3), None);
        assert!(log.resumed());
    }
}
