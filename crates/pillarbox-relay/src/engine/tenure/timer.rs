//! A task that runs at intervals, one at a time.

use std::time::Duration;

use tokio::time::Instant;

pub(super) struct Timer {
    pub(super) every: Duration,
    pub(super) at: Instant,
    pub(super) running: bool,
}

impl Timer {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            at: Instant::now() + every,
            running: false,
        }
    }

    /// Whether it is due. If so, it counts as running.
    pub(super) fn start(&mut self) -> bool {
        let now = !self.running && Instant::now() >= self.at;
        self.running |= now;
        now
    }

    pub(super) fn done(&mut self, every: Duration) {
        self.running = false;
        self.at = Instant::now() + every;
    }
}
