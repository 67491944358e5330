//! Failures that only cause a warning: a log line now and then, not one for each event.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Event, EventId};
use tokio::time::Instant;

use super::{Failure, OnFailure, recent::Recent};

/// The time between two lines about one check.
const QUIET: Duration = Duration::from_secs(10);
/// How many checks are tracked separately. A registry may have any number of schemas.
const CHECKS_MAX: usize = 1_000;
/// How many events are remembered. Events that wait or fail are checked again and again.
const EVENTS_MAX: usize = 10_000;

pub(super) struct Warnings {
    count: AtomicU64,
    events: Mutex<Recent<EventId, ()>>,
    logged: Mutex<HashMap<String, Logged>>,
}

struct Logged {
    at: Instant,
    since: u64,
}

impl Default for Warnings {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            events: Mutex::new(Recent::new(EVENTS_MAX)),
            logged: Mutex::default(),
        }
    }
}

impl Warnings {
    /// Logs the failures, unless there was already a warning about this event.
    pub(super) fn log(&self, event: &Event, failures: &[Failure]) {
        let mut warned = failures
            .iter()
            .filter(|failure| failure.on_failure == OnFailure::Warn)
            .peekable();
        if warned.peek().is_some() && self.is_new(&event.id) {
            warned.for_each(|failure| self.log_one(event, failure));
        }
    }

    fn is_new(&self, event: &EventId) -> bool {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = events.get(event).is_none();
        if is_new {
            events.insert(event.clone(), ());
        }
        is_new
    }

    fn log_one(&self, event: &Event, failure: &Failure) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(unlogged) = self.due_line(&failure.check, Instant::now()) {
            tracing::warn!(
                check = failure.check,
                path = failure.path,
                problem = failure.problem,
                event = %event.id,
                event_type = event.event_type,
                others_since_the_last_line = unlogged,
                "an event fails a check that only warns: delivering it"
            );
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether it is time for another line, and how many failures were not logged since the last one.
    fn due_line(&self, check: &str, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        match logged.get_mut(check) {
            Some(last) if now.duration_since(last.at) < QUIET => {
                last.since += 1;
                None
            }
            Some(last) => {
                last.at = now;
                Some(std::mem::take(&mut last.since))
            }
            None => {
                if logged.len() >= CHECKS_MAX {
                    logged.clear();
                }
                logged.insert(check.to_owned(), Logged { at: now, since: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_a_check_are_rare_and_count_the_skipped_ones() {
        let warnings = Warnings::default();
        let start = Instant::now();
        assert_eq!(warnings.due_line("a", start), Some(0));
        assert_eq!(warnings.due_line("a", start), None);
        assert_eq!(warnings.due_line("b", start), Some(0));
        assert_eq!(warnings.due_line("a", start + QUIET / 2), None);
        assert_eq!(warnings.due_line("a", start + QUIET), Some(2));
    }
}
