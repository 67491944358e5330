//! Failures that are only warned of: a line now and then, not one for each event.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::Event;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Failure, OnFailure, recent::Recent};

/// Between two lines about one check.
const QUIET: Duration = Duration::from_secs(10);
/// Checks that are remembered apart; a registry may have any number of schemas.
const CHECKS_MAX: usize = 1_000;
/// Events that are remembered: those that wait or fail are looked at again and again.
const EVENTS_MAX: usize = 10_000;

pub(super) struct Warnings {
    count: AtomicU64,
    events: Mutex<Recent<Uuid, ()>>,
    told: Mutex<HashMap<String, Told>>,
}

struct Told {
    at: Instant,
    since: u64,
}

impl Default for Warnings {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            events: Mutex::new(Recent::new(EVENTS_MAX)),
            told: Mutex::default(),
        }
    }
}

impl Warnings {
    /// Of an event that was warned of before nothing is told.
    pub(super) fn tell(&self, event: &Event, failures: &[Failure]) {
        let mut warned = failures
            .iter()
            .filter(|failure| failure.on_failure == OnFailure::Warn)
            .peekable();
        if warned.peek().is_some() && self.is_new(event.id) {
            warned.for_each(|failure| self.tell_one(event, failure));
        }
    }

    fn is_new(&self, event: Uuid) -> bool {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = events.get(&event).is_none();
        if is_new {
            events.insert(event, ());
        }
        is_new
    }

    fn tell_one(&self, event: &Event, failure: &Failure) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(untold) = self.news(&failure.check, Instant::now()) {
            tracing::warn!(
                check = failure.check,
                path = failure.path,
                problem = failure.problem,
                event = %event.id,
                event_type = event.event_type,
                others_since_the_last_line = untold,
                "an event fails a check that only warns: delivering it"
            );
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many were not told since the last line, when it is time for another.
    fn news(&self, check: &str, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match told.get_mut(check) {
            Some(last) if now.duration_since(last.at) < QUIET => {
                last.since += 1;
                None
            }
            Some(last) => {
                last.at = now;
                Some(std::mem::take(&mut last.since))
            }
            None => {
                if told.len() >= CHECKS_MAX {
                    told.clear();
                }
                told.insert(check.to_owned(), Told { at: now, since: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_told_of_now_and_then_with_what_was_left_out() {
        let warnings = Warnings::default();
        let start = Instant::now();
        assert_eq!(warnings.news("a", start), Some(0));
        assert_eq!(warnings.news("a", start), None);
        assert_eq!(warnings.news("b", start), Some(0));
        assert_eq!(warnings.news("a", start + QUIET / 2), None);
        assert_eq!(warnings.news("a", start + QUIET), Some(2));
    }
}
