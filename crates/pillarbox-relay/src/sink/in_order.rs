//! For the sinks that take one event after the other.

use std::collections::HashSet;

use super::{Outcome, Outgoing, SinkError};

/// Offers each event in order; those of a key that failed earlier in the batch are held.
pub(super) fn in_order(
    batch: &[Outgoing],
    mut offer: impl FnMut(&Outgoing) -> Result<(), SinkError>,
) -> Vec<Outcome> {
    let mut failed = HashSet::new();
    let outcomes = batch.iter().map(|outgoing| {
        let key = outgoing.event.event.key();
        if failed.contains(key) {
            return Outcome::Held;
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
