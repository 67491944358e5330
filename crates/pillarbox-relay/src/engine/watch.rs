//! Whether a tenure still gets anywhere. Pure: time comes in as an argument.
//!
//! Sinks are asked and answered under a timeout of the engine's own, and so is the sweep; a store's answers are not, because
//! what a statement may take is the store's to say. So a job that never ends, or a state that waits for no job, shows here.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

/// Something a tenure waits for.
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
            Self::Settle => "the database to write down what became of events",
            Self::Due => "the database to return due events",
            Self::Sweep => "the database to look for missed events",
            Self::Heartbeat => "the database to renew the lanes",
            Self::Read => "the database to return new events",
            Self::Report => "the database to note this relay's troubles",
        }
    }
}

/// Jobs on their way, and when something last came of one.
pub(super) struct Watch<Id> {
    limit: Duration,
    running: HashMap<Id, (Job, Instant)>,
    last_result: Instant,
    /// Something came of this tenure.
    pub(super) progressed: bool,
}

impl<Id: Eq + Hash> Watch<Id> {
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            running: HashMap::new(),
            last_result: now,
            progressed: false,
        }
    }

    pub(super) fn started(&mut self, id: Id, job: Job, now: Instant) {
        self.running.insert(id, (job, now));
    }

    pub(super) fn ended(&mut self, id: &Id, now: Instant) {
        // That the lanes are renewed, or the troubles noted, moves no event.
        if let Some((job, _)) = self.running.remove(id)
            && !matches!(job, Job::Heartbeat | Job::Report)
        {
            self.moved(now);
        }
    }

    /// Something came of the work: a page, an answer, a settlement.
    pub(super) fn moved(&mut self, now: Instant) {
        self.last_result = now;
        self.progressed = true;
    }

    /// What the tenure waits for in vain. `other` are waits that are not jobs of the tenure; `work`: it has events that could
    /// move.
    pub(super) fn stalled(
        &self,
        now: Instant,
        other: impl IntoIterator<Item = (Job, Instant)>,
        work: bool,
    ) -> Option<String> {
        let jobs = self.running.values().copied().chain(other);
        let oldest = jobs.min_by_key(|(_, since)| *since);
        if let Some((job, since)) = oldest
            && now.saturating_duration_since(since) > self.limit
        {
            let seconds = now.saturating_duration_since(since).as_secs();
            return Some(format!("waiting for {} for {seconds} s", job.waits_for()));
        }
        let idle = now.saturating_duration_since(self.last_result);
        (work && idle > self.limit).then(|| {
            format!(
                "there are events to move, and nothing has moved for {} s",
                idle.as_secs()
            )
        })
    }

    /// When to look again at the latest.
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
        let stalled = watch.stalled(start + LATER, [], false).unwrap();
        assert!(stalled.contains("write down"), "{stalled}");
        watch.ended(&1, start + LATER);
        assert_eq!(watch.stalled(start + LATER, [], true), None);
        assert!(watch.progressed);
        let read = (Job::Read, start);
        assert!(watch.stalled(start + LATER, [read], false).is_some());
    }

    #[test]
    fn events_that_wait_for_no_job_are_a_stall_and_an_empty_window_is_none() {
        let start = Instant::now();
        let mut watch: Watch<u8> = Watch::new(LIMIT, start);
        assert_eq!(watch.stalled(start + LATER, [], false), None);
        assert!(watch.stalled(start + LATER, [], true).is_some());
        watch.started(1, Job::Heartbeat, start + LIMIT);
        watch.ended(&1, start + LIMIT);
        assert!(
            watch.stalled(start + LATER, [], true).is_some(),
            "a heartbeat moves no event"
        );
    }
}
