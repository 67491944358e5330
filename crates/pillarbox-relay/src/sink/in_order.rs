//! For sinks that process one event after the other.

use std::collections::HashSet;

use super::{Outcome, Outgoing, SinkError};

/// Offers each event in order. After a failure, the later events of its key in the batch are not tried.
pub(super) fn in_order(
    batch: &[Outgoing],
    mut offer: impl FnMut(&Outgoing) -> Result<(), SinkError>,
) -> Vec<Outcome> {
    let mut failed = HashSet::new();
    let outcomes = batch.iter().map(|outgoing| {
        let key = outgoing.event.event.key();
        if failed.contains(key) {
            return Outcome::NotTried;
        }
        match offer(outgoing) {
            Ok(()) => Outcome::Delivered,
            Err(error) => {
                failed.insert(key);
                Outcome::Failed(error)
            }
        }
    });
    outcomes.collect()
}
