//! An event as one line of JSON, for the sinks that people and pipes read.

use std::collections::HashSet;

use jiff::Timestamp;
use pillarbox::Event;
use serde::Serialize;

use super::{Outcome, Outgoing, SinkError, SinkErrorKind};
use crate::event::Seq;

#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    seq: Seq,
    created_at: Timestamp,
    #[serde(flatten)]
    event: &'a Event,
}

/// Appends the event's line. Line breaks between the tokens of a payload become spaces: it is the same JSON, on one line.
pub(super) fn write(into: &mut Vec<u8>, outgoing: &Outgoing, position: Option<u64>) -> Result<(), SinkError> {
    let stored = &outgoing.event;
    let start = into.len();
    let line = Line {
        position,
        seq: stored.seq,
        created_at: stored.created_at,
        event: &stored.event,
    };
    if let Err(error) = serde_json::to_writer(&mut *into, &line) {
        into.truncate(start);
        return Err(SinkError::new(
            SinkErrorKind::Invalid,
            format!("the event can't be written as JSON: {error}"),
        ));
    }
    // Inside a string a line break is always escaped, so a bare one is white space.
    for byte in &mut into[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    into.push(b'\n');
    Ok(())
}

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
