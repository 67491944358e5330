//! The time by which an outbox's knowledge ages. Tests stop it and move it on, so that they need not wait.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The real time, or a test's clock. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<Mutex<Hands>>>);

#[derive(Debug)]
struct Hands {
    /// When it was stopped. `None`: it runs.
    stopped: Option<Instant>,
    ahead: Duration,
}

impl Clock {
    /// A stopped clock.
    pub fn stopped() -> Self {
        Self(Some(Arc::new(Mutex::new(Hands {
            stopped: Some(Instant::now()),
            ahead: Duration::ZERO,
        }))))
    }

    /// Moves it on, whether it runs or not. The real one can't be moved.
    pub fn advance(&self, by: Duration) {
        self.change(|hands| hands.ahead += by);
    }

    /// Starts it again at the present time.
    pub fn start(&self) {
        self.change(|hands| hands.stopped = None);
    }

    fn change(&self, change: impl FnOnce(&mut Hands)) {
        if let Some(hands) = &self.0 {
            change(&mut hands.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub(super) fn now(&self) -> Instant {
        let Some(hands) = &self.0 else {
            return Instant::now();
        };
        let hands = hands.lock().unwrap_or_else(PoisonError::into_inner);
        hands.stopped.unwrap_or_else(Instant::now) + hands.ahead
    }
}
