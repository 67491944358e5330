//! What a tenure starts now, and when it can start the next job.

use std::time::Duration;

use tokio::time::Instant;

use super::Tenure;

impl Tenure<'_> {
    pub(super) fn start_what_can_start(&mut self) {
        if !self.leases.is_beating() && self.beat.start() {
            self.leases.mark(self.window.low_mark());
            self.leases.start_beat();
        }
        if self.ending.is_none() {
            self.close_what_is_away();
            self.park_what_is_paused();
            self.forget_pauses_without_events();
            self.start_publishing();
            self.start_checks();
            self.ask_for_more();
            self.start_sweep();
            self.start_report();
        }
        self.start_settling();
        if self.ending.is_none() {
            self.start_due();
        }
    }

    /// When the next job can start. A time counts only if `start_what_can_start` would really start something then. A
    /// past time that starts nothing would make the loop spin.
    pub(super) fn next_time(&self) -> Instant {
        let now = Instant::now();
        let far = now + Duration::from_secs(1);
        let mut times = vec![far, self.watch.next_look(now)];
        if !self.leases.is_beating() {
            times.push(self.beat.at);
        }
        times.extend(self.next_settling());
        if self.ending.is_none() {
            if self.can_take_due() {
                times.push(self.due_at);
            }
            times.extend(self.next_checks());
            times.extend(self.next_trials(now));
        }
        times.into_iter().min().unwrap_or(far)
    }
}
