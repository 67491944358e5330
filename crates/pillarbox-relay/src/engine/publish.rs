//! The sinks as the engine sees them: which may be given events, which is paused, and what their answers mean.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use tokio::time::Instant;

use super::{
    progress::{Progress, SinkState},
    window::{Entry, Resolution},
};
use crate::{
    retry::RetryPolicy,
    settlement::FailedTry,
    sink::{Outcome, Outgoing, Sink, SinkError, SinkErrorKind},
    verdict::{SinkHealth, Verdict, attempts_max, judge},
};

/// The first look at a sink that is down comes after this, the others up to [`PROBE_MAX`] apart: an outage ends within
/// a second of the sink's return.
const PROBE_FIRST: Duration = Duration::from_millis(100);
const PROBE_MAX: Duration = Duration::from_secs(1);
/// A sink that answers when asked and yet takes nothing, this often in a row, is up: the events are at fault.
const TRIALS: u32 = 3;
/// What was found so holds for this long: else each batch of a topic that nobody takes would be tried anew.
const TRIALS_HOLD: Duration = Duration::from_secs(5);
/// A sink owes an answer within its own timeout. This ends the wait for one that breaks that promise.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// One sink.
pub(super) struct Desk {
    pub(super) name: Arc<str>,
    pub(super) sink: Arc<dyn Sink>,
    /// The name of the relay that has it.
    relay: Arc<str>,
    state: State,
    pub(super) in_flight: usize,
    /// Batches in a row of which it took nothing although it answered when asked and the connection held.
    trials: u32,
    /// That it is up although it took nothing of so many.
    found_up: Option<FoundUp>,
    /// Events it has taken.
    taken: u64,
    /// How many that were when it last took nothing of a whole batch.
    lonely_at: Option<u64>,
}

struct FoundUp {
    until: Instant,
    /// What it had taken then.
    taken: u64,
}

enum State {
    Up,
    /// Nothing is published until a check succeeds.
    Down {
        wait: Duration,
        next: Instant,
        checking: bool,
        why: String,
    },
    /// A check succeeded: one batch at a time, until one is taken. A herd would knock it over again.
    Trial,
}

impl Desk {
    pub(super) fn new(name: Arc<str>, sink: Arc<dyn Sink>, relay: Arc<str>) -> Self {
        Self {
            name,
            sink,
            relay,
            state: State::Up,
            in_flight: 0,
            trials: 0,
            found_up: None,
            taken: 0,
            lonely_at: None,
        }
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, State::Down { .. })
    }

    /// How many batches may be in flight.
    pub(super) fn batches_max(&self, publishers_max: usize) -> usize {
        match self.state {
            State::Up => publishers_max,
            State::Trial => 1,
            State::Down { .. } => 0,
        }
    }

    /// When to ask a paused sink again; `None` while it is not paused or being asked.
    pub(super) fn next_check(&self) -> Option<Instant> {
        match self.state {
            State::Down {
                next,
                checking: false,
                ..
            } => Some(next),
            _ => None,
        }
    }

    pub(super) fn start_check(&mut self) -> Arc<dyn Sink> {
        if let State::Down { checking, .. } = &mut self.state {
            *checking = true;
        }
        self.sink.clone()
    }

    /// What the answer of a paused sink means. `Err`: its configuration is wrong, and the relay must stop.
    pub(super) fn checked(
        &mut self,
        result: Result<(), SinkError>,
        progress: &Progress,
    ) -> Result<(), SinkError> {
        let State::Down { wait, why, .. } = &self.state else {
            return Ok(());
        };
        match result {
            Ok(()) => {
                tracing::info!(sink = &*self.name, "the sink answers again: going on");
                progress.sink_is(&self.name, SinkState::Up);
                self.state = State::Trial;
            }
            Err(error) if judge(&error, SinkHealth::Silent, 1, u32::MAX) == Verdict::Stop => {
                return Err(error);
            }
            Err(error) => {
                // What broke the connection is one thing, what keeps it from coming back may be another.
                if error.message != *why {
                    tracing::warn!(sink = &*self.name, why = error.message, "the sink is still away");
                }
                let wait = (*wait * 2).min(PROBE_MAX);
                self.down(wait, error, progress);
            }
        }
        Ok(())
    }

    /// What the answers to a batch mean. `Err`: the sink's configuration is wrong, and the relay must stop.
    pub(super) fn resolve(
        &mut self,
        batch: Vec<Entry>,
        outcomes: Vec<Outcome>,
        policy: &RetryPolicy,
        rng: &mut StdRng,
        progress: &Progress,
    ) -> Result<Vec<(Entry, Resolution)>, SinkError> {
        assert_eq!(
            outcomes.len(),
            batch.len(),
            "a sink returns one outcome for each event"
        );
        let took = outcomes
            .iter()
            .filter(|outcome| **outcome == Outcome::Delivered)
            .count();
        self.taken += took as u64;
        if self.trials >= TRIALS {
            self.found_up = Some(FoundUp {
                until: Instant::now() + TRIALS_HOLD,
                taken: self.taken - took as u64,
            });
        }
        let found = self
            .found_up
            .as_ref()
            .filter(|found| Instant::now() < found.until);
        let up = found.is_some();
        // Who gets no answer from a sink that was found up is at fault. Whom nobody takes is so only while it takes nobody:
        // what it took since tells more than the finding, and is asked for by `doubted_at`.
        let takes_nothing = found.is_some_and(|found| found.taken == self.taken);
        // A sink that falls silent in the middle of a batch answers nobody from there on: who got no answer is at fault only
        // if the last of the batch got one.
        let silent_at_the_end = outcomes
            .iter()
            .rfind(|outcome| **outcome != Outcome::Held)
            .is_some_and(got_no_answer);
        let health = if (took > 0 && !silent_at_the_end) || up {
            SinkHealth::Answers
        } else {
            SinkHealth::Silent
        };
        let mut down: Vec<SinkError> = Vec::new();
        let mut resolved = Vec::with_capacity(batch.len());
        for (mut entry, outcome) in batch.into_iter().zip(outcomes) {
            let resolution = match outcome {
                Outcome::Delivered => Resolution::Delivered,
                Outcome::Held => Resolution::Returned,
                Outcome::Failed(error) => {
                    let retry = &entry.event.event.retry;
                    let attempts = entry.event.attempts + 1;
                    // What nobody took may have come when the sink went down: only what it takes after that tells. So such an
                    // event is tried twice for each attempt that is counted, and nobody waits for it where others arrive.
                    let health = match error.kind {
                        SinkErrorKind::Unavailable if !takes_nothing => match entry.doubted_at {
                            Some(then) if self.taken > then => SinkHealth::Answers,
                            _ => SinkHealth::Silent,
                        },
                        _ => health,
                    };
                    match judge(&error, health, attempts, attempts_max(policy, retry)) {
                        Verdict::Down => {
                            entry.doubted_at = Some(self.taken);
                            entry.unanswered = error.kind == SinkErrorKind::Timeout;
                            down.push(error);
                            Resolution::Returned
                        }
                        Verdict::Retry => Resolution::Retry {
                            failure: self.failed(error),
                            retry_in: policy.delay(attempts, retry, rng.random()),
                        },
                        Verdict::Reject(reason) => Resolution::Dead {
                            reason,
                            failure: self.failed(error),
                        },
                        Verdict::Stop => return Err(error),
                    }
                }
            };
            resolved.push((entry, resolution));
        }
        let broken = down.iter().any(|error| error.kind == SinkErrorKind::Unreachable);
        match self.outage(down, took) {
            Some(error) => self.pause(error, took == 0 && !broken, progress),
            None => {
                self.trials = 0;
                if matches!(self.state, State::Trial) {
                    self.state = State::Up;
                }
            }
        }
        Ok(resolved)
    }

    /// The error by which the sink is away, if it is. That nobody takes the events of a batch is no outage as long as others are
    /// taken: two such batches with nothing taken between them are.
    fn outage(&mut self, down: Vec<SinkError>, took: usize) -> Option<SinkError> {
        let nobody_took = down.iter().all(|error| error.kind == SinkErrorKind::Unavailable);
        let first = down.into_iter().next()?;
        if nobody_took && matches!(self.state, State::Up) {
            let lonely = took == 0 && self.lonely_at.replace(self.taken) == Some(self.taken);
            return lonely.then_some(first);
        }
        Some(first)
    }

    fn failed(&self, error: SinkError) -> FailedTry {
        FailedTry {
            error: error.message,
            sink: Some(self.name.clone()),
            relay: self.relay.clone(),
        }
    }

    /// `in_vain`: it took nothing of a batch, and no connection broke that would tell why.
    fn pause(&mut self, error: SinkError, in_vain: bool, progress: &Progress) {
        match self.state {
            State::Down { .. } => return,
            State::Trial if in_vain => self.trials += 1,
            State::Trial | State::Up => self.trials = 0,
        }
        self.found_up = None;
        tracing::warn!(
            sink = &*self.name,
            why = error.message,
            "the sink is away: pausing it; no event is charged with an attempt"
        );
        self.down(PROBE_FIRST, error, progress);
    }

    /// Nothing until it is asked again, after `wait`.
    fn down(&mut self, wait: Duration, error: SinkError, progress: &Progress) {
        let why = error.message;
        progress.sink_is(&self.name, SinkState::Down { why: why.clone() });
        self.state = State::Down {
            wait,
            next: Instant::now() + wait,
            checking: false,
            why,
        };
    }
}

fn got_no_answer(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(error) if error.kind == SinkErrorKind::Timeout)
}

/// Gives a batch to a sink and waits for its answers.
pub(super) async fn publish(sink: Arc<dyn Sink>, batch: &[Entry]) -> Vec<Outcome> {
    let outgoing: Vec<Outgoing> = batch
        .iter()
        .map(|entry| Outgoing {
            event: entry.event.clone(),
            stream: entry.stream.clone(),
            envelope: entry.envelope.clone(),
        })
        .collect();
    match tokio::time::timeout(ANSWER_MAX, sink.publish(&outgoing)).await {
        Ok(outcomes) => outcomes,
        Err(_) => {
            let error = SinkError::new(SinkErrorKind::Timeout, "the sink gave no answer at all").in_doubt();
            vec![Outcome::Failed(error); batch.len()]
        }
    }
}

#[cfg(test)]
mod tests;
