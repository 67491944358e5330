//! What happens to an event that was not processed.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        attempt::Job,
        handler::Handler,
        keys::{Failure, Key},
        letter,
    },
    Engine,
};
use crate::{backoff, inbox::Database};

/// The first and the longest delay before a transaction is tried again after a conflict.
const CONFLICT_FIRST: Duration = Duration::from_millis(20);
const CONFLICT_MAX: Duration = Duration::from_secs(1);
/// Further conflicts of one event count as its failures: five minutes of conflicts are not bad luck.
const CONFLICTS_MAX: u32 = 300;

impl<D: Database, H: Handler<D>> Engine<D, H> {
    /// Retries soon and does not count it, unless the handler causes conflicts again and again: then it
    /// counts as a failure.
    pub(super) fn conflicted(&mut self, key: &Key, job: &Job, error: String, handled: bool) {
        tracing::debug!(group = self.work.group, error, "a conflict in the database");
        let mut failure = self.keys.failure(key).cloned().unwrap_or_else(|| Failure {
            attempts: 0,
            conflicts: 0,
            conflicts_handled: 0,
            since: Instant::now(),
            error: String::new(),
            doom: None,
        });
        if failure.doom.is_none() {
            failure.conflicts_handled += u32::from(handled);
            if handled && failure.conflicts_handled >= CONFLICTS_MAX {
                return self.failed(key, job, error, false);
            }
            failure.error = error;
        }
        failure.conflicts = failure.conflicts.saturating_add(1);
        let delay = backoff::delay(failure.conflicts, CONFLICT_FIRST, CONFLICT_MAX, seed(job));
        self.keys.failed(key, failure, Instant::now() + delay);
    }

    pub(super) fn failed(&mut self, key: &Key, job: &Job, error: String, reject: bool) {
        let options = &self.work.options;
        let before = self.keys.failure(key);
        let attempts = before.map_or(0, |failure| failure.attempts) + 1;
        let (conflicts, conflicts_handled) =
            before.map_or((0, 0), |failure| (failure.conflicts, failure.conflicts_handled));
        let since = before.map_or_else(Instant::now, |failure| failure.since);
        let doom = match &job.received {
            Err(_) => Some(letter::NO_EVENT),
            Ok(_) if reject => Some(letter::REJECTED),
            Ok(_) if attempts >= options.attempts_max => Some(letter::EXHAUSTED),
            Ok(_) => None,
        };
        let id = job.id();
        tracing::warn!(
            group = self.work.group,
            topic = job.message.topic,
            position = job.message.position,
            event = id.map(tracing::field::display),
            attempt = attempts,
            error,
            "{}",
            if doom.is_some() {
                "the event becomes a dead letter"
            } else {
                "the event failed; its key waits"
            },
        );
        let delay = match doom {
            Some(_) => Duration::ZERO,
            None => backoff::delay(attempts, options.backoff_base, options.backoff_max, seed(job)),
        };
        let failure = Failure {
            attempts,
            conflicts,
            conflicts_handled,
            since,
            error,
            doom,
        };
        self.keys.failed(key, failure, Instant::now() + delay);
    }

    /// The event is still dead, and its key waits until the dead letter is published.
    pub(super) fn unburied(&mut self, key: &Key, job: &Job, error: &str) {
        let options = &self.work.options;
        let topic = options.dead_letters.topic(&job.message.topic);
        tracing::error!(
            group = self.work.group,
            topic,
            error,
            "a dead letter can't be published; its key waits"
        );
        if let Some(failure) = self.doomed(job, self.keys.failure(key).cloned()) {
            let tries = u32::try_from(failure.since.elapsed().as_secs() / 4).unwrap_or(u32::MAX) + 1;
            let delay = backoff::delay(tries, options.backoff_base, options.backoff_max, seed(job));
            self.keys.failed(key, failure, Instant::now() + delay);
        }
    }
}

/// Spreads out the retries of different events.
fn seed(job: &Job) -> u64 {
    job.message
        .position
        .wrapping_mul(31)
        .wrapping_add(job.message.lane)
}
