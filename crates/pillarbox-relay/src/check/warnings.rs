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

use super::Failure;

/// Between two lines about one check.
const QUIET: Duration = Duration::from_secs(10);
/// Checks that are remembered apart; a registry may have any number of schemas.
const CHECKS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Warnings {
    count: AtomicU64,
    told: Mutex<HashMap<String, Told>>,
}

struct Told {
    at: Instant,
    since: u64,
}

impl Warnings {
    pub(super) fn tell(&self, event: &Event, failure: &Failure) {
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
