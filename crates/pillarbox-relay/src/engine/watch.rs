//! Whether a tenure still makes progress. Pure: time is an argument.
//!
//! The engine itself limits how long it waits for a sink and for the sweep. It does not limit other calls of the store,
//! because the store knows how long a statement may take. So this module finds a job that never ends, and a state in
//! which no job is running.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

/// A kind of job that a tenure waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Job {
    Publish,
    Check,
    Settle,
    Due,
    Sweep,
    Heartbeat,
    Read,
    Report,
}

impl Job {
    fn waits_for(self) -> &'static str {
        match self {
            Self::Publish => "a sink to answer a batch",
            Self::Check => "a sink to say whether it is up",
            Self::Settle => "the database to write the results of events",
            Self::Due => "the database to return due events",
            Self::Sweep => "the database to look for missed events",
            Self::Heartbeat => "the database to renew the lanes",
            Self::Read => "the database to return new events",
            Self::Report => "the database to write this relay's troubles",
        }
    }
}

/// The running jobs, and when one last made progress.
pub(super) struct Watch<Id> {
    limit: Duration,
    running: HashMap<Id, (Job, Instant)>,
    began: Instant,
    last_result: Instant,
    /// Kinds of jobs of which at least one has ended.
    ended: HashSet<Job>,
}

/// What the tenure waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stall {
    pub(super) waiting_for: String,
    /// Whether a job of this kind had ended before. If no job is running: whether there had been progress.
    pub(super) progressed: bool,
}

/// How long a stall is still shown after it is over, so that people can see it.
const SHOWN_FOR: Duration = Duration::from_secs(5);

impl<Id: Eq + Hash> Watch<Id> {
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            running: HashMap::new(),
            began: now,
            last_result: now,
            ended: HashSet::new(),
        }
    }

    pub(super) fn started(&mut self, id: Id, job: Job, now: Instant) {
        self.running.insert(id, (job, now));
    }

    pub(super) fn ended(&mut self, id: &Id, now: Instant) {
        if let Some((job, _)) = self.running.remove(id) {
            self.done(job, now);
        }
    }

    /// A job of this kind has ended.
    pub(super) fn done(&mut self, job: Job, now: Instant) {
        self.ended.insert(job);
        // Only these jobs move events.
        if matches!(job, Job::Publish | Job::Check | Job::Settle | Job::Read) {
            self.last_result = now;
        }
    }

    fn has_moved(&self) -> bool {
        self.last_result > self.began
    }

    /// Whether an earlier stall is over: jobs end, none takes long, and the stall was shown for long enough.
    pub(super) fn is_well(&self, now: Instant, other: impl IntoIterator<Item = (Job, Instant)>) -> bool {
        let long = |since: Instant| now.saturating_duration_since(since) >= SHOWN_FOR;
        let mut jobs = self.running.values().copied().chain(other);
        long(self.began) && !self.ended.is_empty() && !jobs.any(|(_, since)| long(since))
    }

    /// Whether the tenure has stalled, and what it waits for. `other`: waits that are not jobs of the tenure. `work`:
    /// there are events to deliver.
    pub(super) fn stalled(
        &self,
        now: Instant,
        other: impl IntoIterator<Item = (Job, Instant)>,
        work: bool,
    ) -> Option<Stall> {
        let jobs = self.running.values().copied().chain(other);
        let oldest = jobs.min_by_key(|(_, since)| *since);
        if let Some((job, since)) = oldest
            && now.saturating_duration_since(since) > self.limit
        {
            let seconds = now.saturating_duration_since(since).as_secs();
            return Some(Stall {
                waiting_for: format!("waiting for {} for {seconds} s", job.waits_for()),
                progressed: self.ended.contains(&job),
            });
        }
        let idle = now.saturating_duration_since(self.last_result);
        (work && idle > self.limit).then(|| Stall {
            waiting_for: format!(
                "events wait although no job is running: no progress for {} s",
                idle.as_secs()
            ),
            progressed: self.has_moved(),
        })
    }

    /// The latest time for the next look.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        now + self.limit / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);
    const LATER: Duration = Duration::from_secs(61);

    #[test]
    fn a_job_that_does_not_end_is_named() {
        let start = Instant::now();
        let mut watch: Watch<u8> = Watch::new(LIMIT, start);
        watch.started(1, Job::Settle, start);
        assert_eq!(watch.stalled(start + LIMIT, [], true), None);
        let stall = watch.stalled(start + LATER, [], false).unwrap();
        assert!(
            stall.waiting_for.contains("write the results") && !stall.progressed,
            "{stall:?}"
        );
        watch.ended(&1, start + LATER);
        assert_eq!(watch.stalled(start + LATER, [], true), None);
        watch.started(2, Job::Settle, start + LATER);
        let stall = watch.stalled(start + LATER + LATER, [], false).unwrap();
        assert!(stall.progressed, "one had ended before");
        let read = (Job::Read, start);
        assert!(watch.stalled(start + LATER, [read], false).is_some());
    }

    #[test]
    fn events_that_wait_for_no_job_are_a_stall_and_an_empty_window_is_none() {
        let start = Instant::now();
        let mut watch: Watch<u8> = Watch::new(LIMIT, start);
        assert_eq!(watch.stalled(start + LATER, [], false), None);
        assert!(watch.stalled(start + LATER, [], true).is_some());
        watch.started(1, Job::Due, start + LIMIT);
        watch.ended(&1, start + LIMIT);
        assert!(
            watch.stalled(start + LATER, [], true).is_some(),
            "looking for due events moves none"
        );
    }
}
