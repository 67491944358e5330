//! Readers of an event log, over a log in memory.

mod follow;
mod hub;

use std::sync::Arc;

use pillarbox::Event;
use pillarbox_testkit::memory::MemoryLog;

fn event(n: usize) -> Event {
    Event::to("t")
        .event_type("T")
        .aggregate("a", n.to_string())
        .payload(n.to_string())
}

fn log(count: usize) -> Arc<MemoryLog> {
    let log = Arc::new(MemoryLog::default());
    log.append((1..=count).map(event));
    log
}
