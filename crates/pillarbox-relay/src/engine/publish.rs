//! The sinks as the engine sees them: whether they may be given events. Applies the verdicts on their answers.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use tokio::time::Instant;

use super::{
    destinations::{DestinationId, Destinations},
    health::SinkHealth,
    progress::Progress,
    window::{Entry, Resolution},
};
use crate::{
    retry::RetryPolicy,
    settlement::{DeadReason, FailedTry},
    sink::{Outcome, Outgoing, Sink, SinkError, SinkErrorKind},
    verdict::{Verdict, attempts_max, judge},
};

/// How long a sink may take to say whether it can be reached.
const CHECK_TIME_MAX: Duration = Duration::from_secs(10);

/// One sink.
pub(super) struct SinkSlot {
    pub(super) name: Arc<str>,
    pub(super) sink: Arc<dyn Sink>,
    /// The name of the relay that has it.
    relay: Arc<str>,
    pub(super) health: SinkHealth,
}

/// What `resolve` needs besides the answers.
pub(super) struct Judging<'a> {
    pub(super) destinations: &'a mut Destinations,
    pub(super) policy: &'a RetryPolicy,
    /// How long a destination may be away before its events die. `None`: for ever.
    pub(super) destination_outage_max: Option<Duration>,
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
        }
    }

    /// What the answer of a sink that is down means. `Err`: its configuration is wrong, and the relay must stop.
    pub(super) fn checked(
        &mut self,
        result: Result<(), SinkError>,
        progress: &Progress,
    ) -> Result<(), SinkError> {
        match result {
            Ok(()) => {
                tracing::info!(sink = &*self.name, "the sink answers again: going on");
                progress.sink_is(&self.name, None);
                self.health.check_passed();
            }
            Err(error) if error.kind == SinkErrorKind::Misconfigured => return Err(error),
            Err(error) => {
                // What broke the connection is one thing, what keeps it from coming back may be another.
                if self.health.check_failed(&error.message, Instant::now()) {
                    tracing::warn!(sink = &*self.name, why = error.message, "the sink is still away");
                    progress.sink_is(&self.name, Some(&error.message));
                }
            }
        }
        Ok(())
    }

    /// What the answers to a batch mean. `trial`: it was sent to find out how paused destinations are. `Err`: the sink's
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
        // An ordered sink takes a beginning of what it was given for each destination: a later answer tells nothing.
        let later_delivered = match self.sink.capabilities().ordered {
            true => Vec::new(),
            false => later_delivered(&batch, &outcomes),
        };
        let mut broken: Option<String> = None;
        // Where some events of a destination were taken and others not, it counts as paused: else the others would be sent
        // again at once, and again.
        let mut failed: Vec<(DestinationId, String)> = Vec::new();
        let mut answered: Vec<DestinationId> = Vec::new();
        let mut resolved = Vec::with_capacity(batch.len());
        for (index, (mut entry, outcome)) in batch.into_iter().zip(outcomes).enumerate() {
            let destination = entry.destination;
            let error = match outcome {
                Outcome::Delivered => {
                    note(&mut answered, destination);
                    resolved.push((entry, Resolution::Delivered));
                    continue;
                }
                Outcome::Held => {
                    resolved.push((entry, Resolution::Returned));
                    continue;
                }
                Outcome::Failed(error) => error,
            };
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
                    entry.unanswered = error.kind == SinkErrorKind::Timeout;
                    let given_up = judging.given_up(destination, now);
                    if failed.iter().all(|(known, _)| *known != destination) {
                        failed.push((destination, error.message.clone()));
                    }
                    match given_up {
                        Some(max) => Resolution::Dead {
                            reason: DeadReason::MaxRetriesExceeded,
                            failure: self.failed(format!(
                                "{}. This has lasted for more than {} s (publisher.destination_outage_max_seconds)",
                                error.message,
                                max.as_secs()
                            )),
                        },
                        None => Resolution::Returned,
                    }
                }
                Verdict::Retry => {
                    note(&mut answered, destination);
                    Resolution::Retry {
                        retry_in: judging.policy.delay(attempts, retry, judging.rng.random()),
                        failure: self.failed(error.message),
                    }
                }
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
        for destination in answered {
            if failed.iter().all(|(paused, _)| *paused != destination) {
                judging.takes(destination, now);
            }
        }
        for (destination, why) in failed {
            judging.takes_nothing(destination, &why, trial, now);
        }
        match broken {
            Some(why) => self.broke(why, judging.progress),
            None => self.health.answered(),
        }
        Ok(resolved)
    }

    fn broke(&mut self, why: String, progress: &Progress) {
        if self.health.broke(&why, Instant::now()) {
            tracing::warn!(
                sink = &*self.name,
                why,
                "the sink is away: pausing it; no event is charged with an attempt"
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
    /// The limit that a destination's outage has passed.
    fn given_up(&self, destination: DestinationId, now: Instant) -> Option<Duration> {
        let paused = self.destinations.get(destination).health.paused_for(now)?;
        self.destination_outage_max.filter(|max| paused > *max)
    }

    fn takes(&mut self, number: DestinationId, now: Instant) {
        let destination = self.destinations.get_mut(number);
        destination.answered_at = Some(now);
        if let Some(paused) = destination.health.answered(now) {
            let label = &*destination.label;
            tracing::info!(
                destination = label,
                paused_seconds = paused.as_secs(),
                "the destination takes events again: going on"
            );
            self.progress.destination_is(label, None);
        }
    }

    fn takes_nothing(&mut self, number: DestinationId, why: &str, trial: bool, now: Instant) {
        let destination = self.destinations.get_mut(number);
        let label = &*destination.label;
        if destination.health.failed(why, trial, now) {
            tracing::warn!(
                destination = label,
                why,
                "the destination takes nothing: pausing it; no event is charged with an attempt"
            );
        }
        self.progress.destination_is(label, Some(why));
    }
}

fn note(destinations: &mut Vec<DestinationId>, number: DestinationId) {
    if destinations.last() != Some(&number) && !destinations.contains(&number) {
        destinations.push(number);
    }
}

/// For each event, whether its destination accepted one that comes later in the batch. Empty when nothing failed.
fn later_delivered(batch: &[Entry], outcomes: &[Outcome]) -> Vec<bool> {
    if outcomes.iter().all(|outcome| *outcome == Outcome::Delivered) {
        return Vec::new();
    }
    let mut later = vec![false; batch.len()];
    let mut delivered: Vec<DestinationId> = Vec::new();
    for index in (0..batch.len()).rev() {
        later[index] = delivered.contains(&batch[index].destination);
        if outcomes[index] == Outcome::Delivered {
            note(&mut delivered, batch[index].destination);
        }
    }
    later
}

/// Gives a batch to a sink and waits for its answers, which it owes within its own timeout; `answer_max` ends the wait for
/// one that breaks that promise.
pub(super) async fn publish(sink: Arc<dyn Sink>, batch: &[Entry], answer_max: Duration) -> Vec<Outcome> {
    let outgoing: Vec<Outgoing> = batch
        .iter()
        .map(|entry| Outgoing {
            event: entry.event.clone(),
            stream: entry.stream.clone(),
            envelope: entry.envelope.clone(),
        })
        .collect();
    match tokio::time::timeout(answer_max, sink.publish(&outgoing)).await {
        Ok(outcomes) => outcomes,
        Err(_) => {
            let error = SinkError::new(SinkErrorKind::Timeout, "the sink gave no answer at all").in_doubt();
            vec![Outcome::Failed(error); batch.len()]
        }
    }
}

/// Asks a sink whether it can be reached.
pub(super) async fn check(sink: Arc<dyn Sink>) -> Result<(), SinkError> {
    let silent = || {
        SinkError::new(
            SinkErrorKind::Timeout,
            "the sink did not say in time whether it is up",
        )
    };
    tokio::time::timeout(CHECK_TIME_MAX, sink.check())
        .await
        .unwrap_or_else(|_| Err(silent()))
}

#[cfg(test)]
mod tests;
