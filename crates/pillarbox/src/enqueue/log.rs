//! The log line about an event that was written. The relay has the same line with the same fields.

use tracing::debug;

use super::Enqueued;
use crate::event::Event;

/// The transaction is still open: it may roll back. Duplicates were not written. While the level is off, this reads
/// one atomic number for each event.
pub(super) fn enqueued(events: &[Event], results: &[Enqueued]) {
    for (event, result) in events.iter().zip(results) {
        if *result == Enqueued::New {
            debug!(
                event_id = %event.id,
                event_type = event.event_type,
                aggregate_type = event.aggregate_type,
                aggregate_id = event.aggregate_id,
                topic = event.topic,
                "outbox_event_enqueued"
            );
        }
    }
}
