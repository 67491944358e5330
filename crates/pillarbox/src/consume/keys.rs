//! Decides which message may be handled now, and which one waits for its key. No I/O; time is an argument.
//!
//! A key has at most one running message: its first. When that fails, it waits, and those behind it wait with
//! it. Other keys continue.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

/// A key within a lane: the unit of order.
pub(crate) type Key = (u64, Arc<str>);

/// What is known about the failing first message of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) attempts: u32,
    /// Conflicts in the database: all of them, and those that came after the handler had begun.
    pub(crate) conflicts: u32,
    pub(crate) conflicts_handled: u32,
    pub(crate) since: Instant,
    pub(crate) error: String,
    /// It becomes a dead letter, for this reason.
    pub(crate) doom: Option<&'static str>,
}

/// A message to handle now.
#[derive(Debug)]
pub(crate) struct Turn<M> {
    pub(crate) key: Key,
    pub(crate) message: M,
    pub(crate) failure: Option<Failure>,
}

#[derive(Debug)]
pub(crate) struct Keys<M> {
    queues: HashMap<Key, Queue<M>>,
    ready: VecDeque<Key>,
    waiting: BTreeSet<(Instant, Key)>,
    held: usize,
    running: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Queue<M> {
    messages: VecDeque<M>,
    state: State,
    failure: Option<Failure>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Ready,
    Running,
    Waiting(Instant),
    /// Its lane was revoked; nothing follows the running message.
    Leaving,
}

impl<M: Clone> Keys<M> {
    pub(crate) fn new() -> Self {
        Self {
            queues: HashMap::new(),
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            held: 0,
            running: HashMap::new(),
        }
    }

    pub(crate) fn push(&mut self, key: Key, message: M) {
        self.held += 1;
        match self.queues.get_mut(&key) {
            Some(queue) => queue.messages.push_back(message),
            None => {
                let queue = Queue {
                    messages: VecDeque::from([message]),
                    state: State::Ready,
                    failure: None,
                };
                self.ready.push_back(key.clone());
                self.queues.insert(key, queue);
            }
        }
    }

    /// The next message to handle. It counts as running from now on.
    pub(crate) fn take(&mut self) -> Option<Turn<M>> {
        while let Some(key) = self.ready.pop_front() {
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            if queue.state != State::Ready {
                continue;
            }
            let Some(message) = queue.messages.front().cloned() else {
                continue;
            };
            queue.state = State::Running;
            *self.running.entry(key.0).or_default() += 1;
            return Some(Turn {
                failure: queue.failure.clone(),
                key,
                message,
            });
        }
        None
    }

    /// The first message of the key is finished; the next may run.
    pub(crate) fn done(&mut self, key: &Key) {
        let Some(state) = self.stopped(key) else { return };
        let Some(queue) = self.queues.get_mut(key) else {
            return;
        };
        queue.messages.pop_front();
        self.held -= 1;
        queue.failure = None;
        if queue.messages.is_empty() || state == State::Leaving {
            self.forget(key);
        } else {
            queue.state = State::Ready;
            self.ready.push_back(key.clone());
        }
    }

    /// The first message of the key could not be tried: it is ready again, with no failure recorded.
    pub(crate) fn again(&mut self, key: &Key) {
        match self.stopped(key) {
            Some(State::Leaving) => self.forget(key),
            Some(_) => {
                if let Some(queue) = self.queues.get_mut(key) {
                    queue.state = State::Ready;
                    self.ready.push_front(key.clone());
                }
            }
            None => {}
        }
    }

    /// The first message of the key failed and is due again at `until`.
    pub(crate) fn failed(&mut self, key: &Key, failure: Failure, until: Instant) {
        match self.stopped(key) {
            Some(State::Leaving) => self.forget(key),
            Some(_) => {
                if let Some(queue) = self.queues.get_mut(key) {
                    queue.failure = Some(failure);
                    queue.state = State::Waiting(until);
                    self.waiting.insert((until, key.clone()));
                }
            }
            None => {}
        }
    }

    pub(crate) fn failure(&self, key: &Key) -> Option<&Failure> {
        self.queues.get(key)?.failure.as_ref()
    }

    /// Messages that are due become ready.
    pub(crate) fn wake(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, key)) = self.waiting.pop_first() else {
                return;
            };
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.state = State::Ready;
                self.ready.push_back(key);
            }
        }
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.waiting.first().map(|(due, _)| *due)
    }

    /// Drops everything of this lane except running messages.
    pub(crate) fn leave(&mut self, lane: u64) {
        self.leave_where(|key| key.0 == lane);
    }

    /// Drops everything except running messages.
    pub(crate) fn leave_all(&mut self) {
        self.leave_where(|_| true);
    }

    fn leave_where(&mut self, leaves: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.queues.keys().filter(|key| leaves(key)).cloned().collect();
        for key in keys {
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            match queue.state {
                State::Running | State::Leaving => {
                    queue.state = State::Leaving;
                    self.held -= queue.messages.len() - 1;
                    queue.messages.truncate(1);
                }
                State::Waiting(until) => {
                    self.waiting.remove(&(until, key.clone()));
                    self.forget(&key);
                }
                State::Ready => self.forget(&key),
            }
        }
    }

    /// Whether a message of this lane is running.
    pub(crate) fn is_running(&self, lane: u64) -> bool {
        self.running.contains_key(&lane)
    }

    /// The number of messages in memory, running or not.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Keys whose first message has failed.
    pub(crate) fn failing(&self) -> usize {
        self.queues
            .values()
            .filter(|queue| queue.failure.is_some())
            .count()
    }

    /// The message that has been failing for the longest time.
    pub(crate) fn oldest_failure(&self) -> Option<(&M, &Failure)> {
        self.queues
            .values()
            .filter_map(|queue| Some((queue.messages.front()?, queue.failure.as_ref()?)))
            .min_by_key(|(_, failure)| failure.since)
    }

    /// The state of a key while its message runs.
    fn stopped(&mut self, key: &Key) -> Option<State> {
        let state = self.queues.get(key)?.state;
        if !matches!(state, State::Running | State::Leaving) {
            return None;
        }
        if let Some(running) = self.running.get_mut(&key.0) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&key.0);
            }
        }
        Some(state)
    }

    fn forget(&mut self, key: &Key) {
        if let Some(queue) = self.queues.remove(key) {
            self.held -= queue.messages.len();
        }
    }
}

#[cfg(test)]
mod tests;
