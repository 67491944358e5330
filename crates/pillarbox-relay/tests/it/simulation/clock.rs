//! The time of day in a simulation. It advances with tokio's clock and is the same in every run.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts the clock of a history.
pub(super) fn start() {
    START.set(Some(Instant::now()));
}

pub(super) fn now() -> Timestamp {
    let start = START.get().expect("the clock was not started");
    let passed = SignedDuration::try_from(start.elapsed()).expect("the duration is out of range");
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50) + passed
}
