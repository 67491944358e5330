//! The loop: reads what the broker delivers, handles keys in parallel and the events of each key one after
//! the other, and reports what may be acknowledged.
//!
//! **Why order holds**, even while two instances handle the same events, or while one does not know yet that
//! it was replaced: a source delivers the messages of a lane in order, starting at a position below which
//! everything is done. So an instance that applies an event of a key knows that every earlier event of that
//! key is committed: by its own commit, or because the inbox returned `Before`. If two instances try the same
//! event, the inbox's unique index serialises them, and the second one finds it done.
//!
//! **Why nothing is lost**: a position is acknowledged after the commit, never before.

mod failing;
mod looking;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::{Id, JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at},
};

use super::{
    ConsumeError,
    attempt::{Job, Outcome, Work},
    handler::Handler,
    keys::{Key, Keys, Turn},
    lag::{Failing, Lag, is_news},
    letter,
    source::{Incoming, Note, Source},
    suspects::{Suspects, Watch},
};
use crate::{
    backoff,
    inbox::{Begun, Database, InboxError},
};

/// How often the lag is measured.
const LOOK: Duration = Duration::from_millis(500);
/// The first and the longest delay between two attempts while the database is away.
const AWAY_FIRST: Duration = Duration::from_millis(100);
const AWAY_MAX: Duration = Duration::from_secs(5);
/// The time for the last calls to the database and the broker if the handlers used up the whole shutdown
/// timeout.
const LAST_WORD: Duration = Duration::from_secs(1);
/// A timer that never fires.
const NEVER: Duration = Duration::from_secs(86_400);

pub(super) struct Engine<D, H> {
    work: Arc<Work<D, H>>,
    source: Source,
    keys: Keys<Arc<Job>>,
    running: JoinSet<Outcome>,
    turns: HashMap<Id, (Key, Arc<Job>)>,
    /// Lanes that were revoked while one of their messages was still being handled.
    leaving: Vec<(u64, std::sync::mpsc::Sender<()>)>,
    suspects: Suspects,
    looks: JoinSet<Result<Vec<Begun>, InboxError>>,
    /// The task that must run alone, if there is one.
    alone: Option<Id>,
    away: Option<Away>,
    lag: watch::Sender<Lag>,
    lag_told: u64,
}

struct Away {
    tries: u32,
    until: Instant,
}

impl<D: Database, H: Handler<D>> Engine<D, H> {
    pub(super) fn new(work: Work<D, H>, source: Source, lag: watch::Sender<Lag>) -> Self {
        Self {
            suspects: Suspects::new(work.options.deaths_max, work.options.held_events_max),
            looks: JoinSet::new(),
            alone: None,
            work: Arc::new(work),
            source,
            keys: Keys::new(),
            running: JoinSet::new(),
            turns: HashMap::new(),
            leaving: Vec::new(),
            away: None,
            lag,
            lag_told: 0,
        }
    }

    /// Runs until `stop`, or until the source ends with an error. Then running handlers have
    /// `shutdown_timeout` to finish.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<()>) -> Result<(), ConsumeError> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = loop {
            self.keys.wake(Instant::now());
            self.start();
            let due = self.due();
            tokio::select! {
                // Dropping the handle without stopping it also ends the loop.
                _ = &mut stop => break Ok(()),
                incoming = self.source.incoming.recv() => match incoming {
                    Some(Incoming::Ended(error)) => break Err(error),
                    Some(incoming) => self.arrived(incoming),
                    None => break Err(gone()),
                },
                Some(joined) = self.running.join_next_with_id() => self.finished(joined),
                Some(Ok(rows)) = self.looks.join_next() => self.looked(rows),
                () = sleep_until(due) => {}
                _ = look.tick() => self.look(),
            }
        };
        self.finish().await;
        ended
    }

    fn due(&self) -> Instant {
        let due = self.keys.next_due().unwrap_or_else(|| Instant::now() + NEVER);
        match &self.away {
            Some(away) if away.until > Instant::now() => due.min(away.until),
            _ => due,
        }
    }

    fn arrived(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Message(message) if letter::is_own(&message, &self.work.group) => {
                self.done(message.lane, message.position);
            }
            Incoming::Message(message) => {
                let arrival = self.suspects.arrived(message.lane);
                let job = Job::new(message, arrival);
                let key = (job.message.lane, job.key.clone());
                self.keys.push(key, Arc::new(job));
            }
            Incoming::Revoked { lane, quiet } => {
                self.keys.leave(lane);
                self.suspects.left(lane);
                self.leaving.push((lane, quiet));
                self.let_go();
            }
            // `run` ends the loop on this.
            Incoming::Ended(_) => {}
        }
    }

    /// Dropping the sender tells the receiver that nothing of the lane is running any more.
    fn let_go(&mut self) {
        let keys = &self.keys;
        self.leaving.retain(|(lane, _)| keys.is_running(*lane));
    }

    /// While the database is away, only one attempt at a time checks whether it is back.
    fn start(&mut self) {
        let room = match &self.away {
            Some(away) if away.until > Instant::now() => 0,
            Some(_) => 1,
            None => self.work.options.concurrency.max(1),
        };
        if room > 0 && self.suspects.wants_look() {
            return self.look_for_suspects();
        }
        while self.running.len() < room && self.alone.is_none() {
            let Some(Turn {
                key,
                message: job,
                failure,
            }) = self.keys.take()
            else {
                return;
            };
            let watch = self.suspects.watch(job.message.lane, job.arrival, job.id());
            if watch == Watch::Alone && !self.running.is_empty() {
                return self.keys.again(&key);
            }
            let failure = self.doomed(&job, failure);
            let (work, at_work) = (self.work.clone(), job.clone());
            // A separate task, so that a panic ends only this attempt.
            let task = self
                .running
                .spawn(async move { work.watched(&at_work, failure, watch).await });
            self.alone = (watch == Watch::Alone).then_some(task.id());
            self.turns.insert(task.id(), (key, job));
        }
    }

    fn finished(&mut self, joined: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match joined {
            Ok(finished) => finished,
            Err(error) => {
                let id = error.id();
                let error = match error.try_into_panic() {
                    Ok(panic) => format!("the handler panicked: {}", panic_text(&*panic)),
                    Err(_) => return,
                };
                let reject = false;
                (id, Outcome::Failed { error, reject })
            }
        };
        self.alone.take_if(|alone| *alone == id);
        let Some((key, job)) = self.turns.remove(&id) else {
            return;
        };
        if !matches!(outcome, Outcome::Away { .. }) {
            self.database_is_back();
        }
        match outcome {
            Outcome::Done | Outcome::Before => {
                if outcome == Outcome::Before {
                    self.suspects.processed(job.message.lane);
                }
                self.suspects.done(job.id());
                self.keys.done(&key);
                self.done(job.message.lane, job.message.position);
            }
            Outcome::Away { error } => {
                self.keys.again(&key);
                self.database_away(&error);
            }
            Outcome::Conflict { error, handled } => self.conflicted(&key, &job, error, handled),
            Outcome::Failed { error, reject } => self.failed(&key, &job, error, reject),
            Outcome::Unburied { error } => self.unburied(&key, &job, &error),
        }
        self.let_go();
    }

    fn done(&self, lane: u64, position: u64) {
        // If the source has ended, it does not need the note.
        let _ = self.source.notes.send(Note::Done { lane, position });
    }

    fn database_is_back(&mut self) {
        if self.away.take().is_some() {
            tracing::info!(group = self.work.group, "the database is back");
        }
    }

    fn database_away(&mut self, error: &str) {
        let tries = self.away.as_ref().map_or(0, |away| away.tries) + 1;
        if tries == 1 {
            tracing::warn!(
                group = self.work.group,
                error,
                "the database is away; events wait for it"
            );
        }
        let delay = backoff::delay(tries, AWAY_FIRST, AWAY_MAX, u64::from(tries));
        let until = Instant::now() + delay;
        self.away = Some(Away { tries, until });
    }

    fn look(&mut self) {
        let oldest = self.keys.oldest_failure();
        let lag = Lag {
            waiting: *self.source.waiting.borrow(),
            held: self.keys.held(),
            in_flight: self.running.len(),
            failing: self.keys.failing(),
            oldest_failing: oldest.map(|(job, failure)| Failing {
                event_id: job.id().cloned(),
                key: job.key.to_string(),
                attempts: failure.attempts,
                since: failure.since.elapsed(),
                error: failure.error.clone(),
            }),
            database_away: self.away.is_some(),
        };
        let total = lag.total();
        if is_news(self.lag_told, total) {
            tracing::info!(
                group = self.work.group,
                lag = total,
                held = lag.held,
                "the lag changed"
            );
            self.lag_told = total;
        }
        self.lag.send_replace(lag);
    }

    /// Starts nothing new, lets running handlers finish, acknowledges what is done and gives the rest back.
    async fn finish(mut self) {
        self.keys.leave_all();
        let end = Instant::now() + self.work.options.shutdown_timeout;
        while !self.running.is_empty() {
            tokio::select! {
                Some(joined) = self.running.join_next_with_id() => self.finished(joined),
                () = sleep_until(end) => {
                    tracing::warn!(
                        group = self.work.group,
                        handlers = self.running.len(),
                        "handlers did not finish in time; their work is rolled back and their events are delivered again"
                    );
                    break;
                }
            }
        }
        self.running.shutdown().await;
        let end = end.max(Instant::now() + LAST_WORD);
        let (closed, closing) = oneshot::channel();
        let told = self.source.notes.send(Note::Close { closed }).is_ok();
        let last_words = async {
            self.leave_no_counts().await;
            if told {
                let _ = closing.await;
            }
        };
        if timeout_at(end, last_words).await.is_err() {
            tracing::warn!(
                "the broker or the database does not answer; after the next start, unfinished events are delivered again"
            );
        }
    }
}

/// The error for a source that ended without giving one.
fn gone() -> ConsumeError {
    ConsumeError::Broker {
        what: "the consumer ended".to_owned(),
        source: "the task that reads from the broker is gone".into(),
    }
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests;
