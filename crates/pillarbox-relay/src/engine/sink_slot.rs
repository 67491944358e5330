//! A sink as the engine sees it, with its health. Publishes batches, checks the sink, and applies the verdicts on its
//! answers.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rand::{RngExt, rngs::StdRng};
use tokio::time::Instant;

use super::{
    Options,
    destinations::{DestinationId, Destinations},
    health::{CHECK_WAIT_MAX, Fault, SinkHealth},
    progress::Progress,
    window::{Entry, Resolution},
};
use crate::{
    log::{self, FailureLog},
    retry::RetryPolicy,
    settlement::{DeadReason, FailedTry},
    sink::{Outcome, Outgoing, Sink, SinkError, SinkErrorKind},
    trace::Sending,
    verdict::{Verdict, attempts_max, judge},
};

/// How long the check of a sink may take.
const CHECK_TIME_MAX: Duration = Duration::from_secs(10);

/// A sink that had nothing to answer for this time is checked.
const IDLE_CHECK: Duration = Duration::from_secs(10);

/// One sink.
pub(super) struct SinkSlot {
    pub(super) name: Arc<str>,
    pub(super) sink: Arc<dyn Sink>,
    /// The name of the relay.
    relay: Arc<str>,
    pub(super) health: SinkHealth,
    /// When it must be checked if it is up and nothing is sent to it until then.
    idle_check: Instant,
    /// The latest check failed, although the sink is connected.
    failing_check: bool,
    failures: FailureLog,
}

/// What `resolve` needs besides the outcomes.
pub(super) struct Judging<'a> {
    pub(super) destinations: &'a mut Destinations,
    pub(super) policy: &'a RetryPolicy,
    /// How long a destination may be away before its events die. `None`: no limit.
    pub(super) destination_outage_max: Option<Duration>,
    pub(super) now: Timestamp,
    pub(super) rng: &'a mut StdRng,
    pub(super) progress: &'a Progress,
}

impl SinkSlot {
    pub(super) fn new(name: Arc<str>, sink: Arc<dyn Sink>, relay: Arc<str>) -> Self {
        Self {
            name,
            sink,
            relay,
            health: SinkHealth::Up,
            idle_check: Instant::now(),
            failing_check: false,
            failures: FailureLog::default(),
        }
    }

    /// How many events a batch may have.
    pub(super) fn batch_events_max(&self, options: &Options) -> usize {
        let own = self.sink.capabilities().batch_events_max.unwrap_or(usize::MAX);
        options.batch_events_max.min(own).max(1)
    }

    /// When the sink must be checked: at the start, while it is down, and when it has had nothing to answer for a
    /// while. Otherwise nobody would notice that a sink without events is away.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.health.next_check().or(Some(self.idle_check))
    }

    /// Applies the result of a check. `Err`: the sink's configuration is wrong, and the relay must stop.
    pub(super) fn checked(
        &mut self,
        result: Result<(), SinkError>,
        progress: &Progress,
    ) -> Result<(), SinkError> {
        match result {
            Ok(()) => {
                self.answered(progress);
                self.health.check_passed();
            }
            Err(error) if error.kind == SinkErrorKind::Misconfigured => return Err(error),
            Err(error) if self.health.is_down() => {
                // The check may fail for another reason than the one that broke the connection.
                if self.health.check_failed(&error.message, Instant::now()) {
                    tracing::warn!(sink = &*self.name, why = error.message, "the sink is still away");
                    progress.sink_is(&self.name, Some(&error.message));
                }
            }
            Err(error) if error.kind == SinkErrorKind::Unreachable => self.broke(error.message, progress),
            // There is a connection, so events may still get through: say so, and do not pause the sink.
            Err(error) => {
                self.idle_check = Instant::now() + CHECK_WAIT_MAX;
                if !std::mem::replace(&mut self.failing_check, true) {
                    tracing::warn!(
                        sink = &*self.name,
                        why = error.message,
                        "the check of the sink fails"
                    );
                }
                progress.sink_is(&self.name, Some(&error.message));
            }
        }
        Ok(())
    }

    /// Applies the outcomes of a batch. `trial`: the batch was the trial of paused destinations. `Err`: the sink's
    /// configuration is wrong, and the relay must stop.
    pub(super) fn resolve(
        &mut self,
        batch: Vec<Entry>,
        outcomes: Vec<Outcome>,
        trial: bool,
        judging: &mut Judging<'_>,
    ) -> Result<Vec<(Entry, Resolution)>, SinkError> {
        assert_eq!(
            outcomes.len(),
            batch.len(),
            "a sink returns one outcome for each event"
        );
        let now = Instant::now();
        // An ordered sink accepts no event of a destination after a failed one. So a later answer says nothing there.
        let later_delivered = match self.sink.capabilities().ordered {
            true => Vec::new(),
            false => later_delivered(&batch, &outcomes),
        };
        let mut broken: Option<String> = None;
        // If a destination accepted some events and not others, it is paused. Otherwise the others would be sent again
        // at once, in a loop.
        let mut failed: Vec<(DestinationId, Fault)> = Vec::new();
        let mut answered: Vec<DestinationId> = Vec::new();
        let mut resolved = Vec::with_capacity(batch.len());
        let recorded = &judging.progress.recorded;
        let recorder = recorded.sink(&self.name);
        for (index, (mut entry, outcome)) in batch.into_iter().zip(outcomes).enumerate() {
            let destination = entry.target.destination;
            let error = match outcome {
                Outcome::Delivered => {
                    note(&mut answered, destination);
                    log::published(&entry.event, &self.name);
                    recorder.published(judging.now.duration_since(entry.event.created_at));
                    resolved.push((entry, Resolution::Delivered));
                    continue;
                }
                Outcome::NotTried => {
                    resolved.push((entry, Resolution::Returned));
                    continue;
                }
                Outcome::Failed(error) => error,
            };
            recorded.publish_error(&self.name, error.kind);
            let retry = &entry.event.event.retry;
            let attempts = entry.event.attempts + 1;
            let later = later_delivered.get(index).copied().unwrap_or(false);
            let verdict = judge(&error, later, attempts, attempts_max(judging.policy, retry));
            let resolution = match verdict {
                Verdict::SinkDown => {
                    broken.get_or_insert(error.message);
                    Resolution::Returned
                }
                Verdict::DestinationDown => {
                    entry.suspect = error.kind.may_be_the_event();
                    let given_up = judging.given_up(destination, now);
                    note_fault(&mut failed, destination, &error);
                    match given_up {
                        Some(max) => Resolution::Dead {
                            reason: DeadReason::MaxRetriesExceeded,
                            failure: self.failed(format!(
                                "{}. This has lasted for more than {} s (outbox.publisher.destination_outage_max_seconds)",
                                error.message,
                                max.as_secs()
                            )),
                        },
                        None => Resolution::Returned,
                    }
                }
                Verdict::Retry => {
                    note(&mut answered, destination);
                    let retry_in = judging.policy.delay(attempts, retry, judging.rng.random());
                    recorded.retry(retry_in);
                    self.failures
                        .failed(&entry.event, &self.name, &error, retry_in, now);
                    recorded.event_failed(&entry.event.event.event_type);
                    Resolution::Retry {
                        retry_in,
                        failure: self.failed(error.message),
                    }
                }
                // `Recorded::settled` counts deaths.
                Verdict::Reject(reason) => {
                    note(&mut answered, destination);
                    Resolution::Dead {
                        reason,
                        failure: self.failed(error.message),
                    }
                }
                Verdict::Stop => return Err(error),
            };
            resolved.push((entry, resolution));
        }
        let has_answered = !answered.is_empty();
        for destination in answered {
            if failed.iter().all(|(paused, _)| *paused != destination) {
                judging.answered(destination, now);
            }
        }
        for (destination, fault) in failed {
            judging.accepted_nothing(destination, &fault, trial, now);
        }
        match broken {
            Some(why) => self.broke(why, judging.progress),
            None => {
                // A batch from before an outage can be answered late. The check tells when the outage is over.
                if has_answered && !self.health.is_down() {
                    self.answered(judging.progress);
                }
                self.health.answered();
            }
        }
        Ok(resolved)
    }

    /// The sink is there.
    fn answered(&mut self, progress: &Progress) {
        self.idle_check = Instant::now() + IDLE_CHECK;
        self.failing_check = false;
        if let Some(away) = progress.sink_is(&self.name, None) {
            let waiting = progress.waiting();
            let outage_seconds = away.as_secs();
            tracing::info!(
                sink = &*self.name,
                outage_seconds,
                waiting,
                "the sink answers again; resuming"
            );
        }
    }

    fn broke(&mut self, why: String, progress: &Progress) {
        if self.health.broke(&why, Instant::now()) {
            tracing::warn!(
                sink = &*self.name,
                why,
                "the sink is away: pausing it; no attempt is counted"
            );
            progress.sink_is(&self.name, Some(&why));
        }
    }

    pub(super) fn failed(&self, error: String) -> FailedTry {
        FailedTry {
            error,
            sink: Some(self.name.clone()),
            relay: self.relay.clone(),
        }
    }
}

impl Judging<'_> {
    /// The limit, if the outage of the destination is longer than it.
    fn given_up(&self, destination: DestinationId, now: Instant) -> Option<Duration> {
        let paused = self.destinations.get(destination).health.paused_for(now)?;
        self.destination_outage_max.filter(|max| paused > *max)
    }

    /// It accepted, refused or failed single events: it is there.
    fn answered(&mut self, number: DestinationId, now: Instant) {
        let destination = self.destinations.get_mut(number);
        destination.answered_at = Some(now);
        if let Some(paused) = destination.health.answered(now) {
            let label = &*destination.label;
            if destination.pauses.resumed() {
                tracing::info!(
                    destination = label,
                    paused_seconds = paused.as_secs(),
                    "the destination answers again; resuming"
                );
            }
            self.progress.destination_is(label, None);
        }
    }

    fn accepted_nothing(&mut self, number: DestinationId, fault: &Fault, trial: bool, now: Instant) {
        let destination = self.destinations.get_mut(number);
        let (label, why) = (&*destination.label, &*fault.why);
        let is_new = destination.health.failed(fault, trial, now);
        if let Some(not_logged) = destination.pauses.paused(is_new, now) {
            tracing::warn!(
                destination = label,
                why,
                not_logged,
                "the destination accepts nothing: pausing it; no attempt is counted"
            );
        }
        self.progress.destination_is(label, Some(why));
    }
}

/// The first reason of each destination is kept, and the longest wait.
fn note_fault(faults: &mut Vec<(DestinationId, Fault)>, destination: DestinationId, error: &SinkError) {
    let may_be_the_event = error.kind.may_be_the_event();
    match faults.iter_mut().find(|(known, _)| *known == destination) {
        Some((_, fault)) => {
            fault.retry_after = fault.retry_after.max(error.retry_after);
            fault.may_be_the_event &= may_be_the_event;
        }
        None => {
            let fault = Fault {
                why: error.message.clone(),
                retry_after: error.retry_after,
                may_be_the_event,
            };
            faults.push((destination, fault));
        }
    }
}

fn note(destinations: &mut Vec<DestinationId>, number: DestinationId) {
    if destinations.last() != Some(&number) && !destinations.contains(&number) {
        destinations.push(number);
    }
}

/// For each event: whether its destination accepted a later event of the batch. Empty if nothing failed.
fn later_delivered(batch: &[Entry], outcomes: &[Outcome]) -> Vec<bool> {
    if outcomes.iter().all(|outcome| *outcome == Outcome::Delivered) {
        return Vec::new();
    }
    let mut later = vec![false; batch.len()];
    let mut delivered: Vec<DestinationId> = Vec::new();
    for index in (0..batch.len()).rev() {
        later[index] = delivered.contains(&batch[index].target.destination);
        if outcomes[index] == Outcome::Delivered {
            note(&mut delivered, batch[index].target.destination);
        }
    }
    later
}

/// Gives a batch to a sink and waits for its outcomes. The sink must return them within its own timeout. `answer_max`
/// ends the wait if it does not. `sending`: some of its events are traced.
pub(super) async fn publish(
    sink: Arc<dyn Sink>,
    batch: &[Entry],
    sending: Option<&Sending>,
    answer_max: Duration,
) -> Vec<Outcome> {
    let outgoing: Vec<Outgoing> = batch
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let plain = || Outgoing::new(entry.event.clone());
            Outgoing {
                stream: entry.target.stream.clone(),
                envelope: entry.target.envelope.clone(),
                ..sending
                    .and_then(|sending| sending.outgoing(index, &entry.event))
                    .unwrap_or_else(plain)
            }
        })
        .collect();
    match tokio::time::timeout(answer_max, sink.publish(&outgoing)).await {
        Ok(outcomes) => outcomes,
        Err(_) => {
            let error = SinkError::new(SinkErrorKind::Timeout, "the sink did not answer").in_doubt();
            vec![Outcome::Failed(error); batch.len()]
        }
    }
}

/// Asks a sink whether it can be reached.
pub(super) async fn check(sink: Arc<dyn Sink>) -> Result<(), SinkError> {
    let silent = || {
        SinkError::new(
            SinkErrorKind::Timeout,
            "the check of the sink got no answer in time",
        )
    };
    tokio::time::timeout(CHECK_TIME_MAX, sink.check())
        .await
        .unwrap_or_else(|_| Err(silent()))
}

#[cfg(test)]
mod tests;
