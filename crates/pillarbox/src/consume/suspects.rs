//! Which events may have killed a process. No I/O.
//!
//! When a process dies, the events it was handling are among the first unprocessed events of its lanes: those
//! it held in memory. So after a start these are *suspects*. Before the handler of a suspect begins, a row
//! records it, and the transaction of its effect deletes that row. A row that still exists at the next start
//! belongs to an event that was being handled when the process died. Only one of these events is the culprit.
//! So each of them is tried alone, with no other handler running: an innocent one succeeds, and only the
//! culprit's count keeps rising, until it becomes a dead letter.
//!
//! Nothing is written if no process died. Each consumer has its own row, which it deletes when it stops
//! normally. Without a row of another consumer there are no suspects.

use std::collections::HashMap;

use super::letter;
use crate::{event::EventId, inbox::Begun};

#[derive(Debug)]
pub(super) struct Suspects {
    /// 0: nothing is suspected.
    deaths_max: u32,
    /// At most so many messages of a lane can arrive before one that was being handled when the process died.
    window: u64,
    lanes: HashMap<u64, Lane>,
    /// How often each event has begun without ending.
    begun: HashMap<EventId, u32>,
    /// There is a new lane, and the rows for its events are not read yet.
    look: bool,
}

#[derive(Debug, Default)]
struct Lane {
    arrived: u64,
    /// Of these, how many were processed before.
    processed: u64,
    /// `None`: the rows are not read yet.
    suspicious: Option<bool>,
}

/// How to try an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// The normal way.
    No,
    /// Record its beginning first.
    Begins,
    /// Record its beginning, and run nothing else meanwhile.
    Alone,
}

impl Suspects {
    /// `held_max`: how many events a consumer of this group holds in memory at most.
    pub(super) fn new(deaths_max: u32, held_max: usize) -> Self {
        Self {
            deaths_max,
            // The events that were held, plus as many that are held now and not yet known to be processed.
            window: 2 * held_max as u64,
            lanes: HashMap::new(),
            begun: HashMap::new(),
            look: false,
        }
    }

    /// A message has arrived. Returns its number within its lane.
    pub(super) fn arrived(&mut self, lane: u64) -> u64 {
        let lane = self.lanes.entry(lane).or_default();
        self.look |= lane.suspicious.is_none() && self.deaths_max > 0;
        lane.arrived += 1;
        lane.arrived
    }

    pub(super) fn left(&mut self, lane: u64) {
        self.lanes.remove(&lane);
    }

    /// Whether the rows have to be read before anything begins.
    pub(super) fn wants_look(&self) -> bool {
        self.look
    }

    /// Takes the rows; `own` is the id of this consumer's own row.
    pub(super) fn looked(&mut self, rows: &[Begun], own: &EventId) {
        self.look = false;
        let strangers = rows.iter().any(|row| row.times == 0 && row.id != *own);
        for lane in self.lanes.values_mut() {
            lane.suspicious.get_or_insert(strangers);
        }
        let begun = rows.iter().filter(|row| row.times > 0);
        self.begun = begun.map(|row| (row.id.clone(), row.times)).collect();
    }

    /// How to try the event `id`, which arrived as number `arrival` of its lane.
    pub(super) fn watch(&self, lane: u64, arrival: u64, id: Option<&EventId>) -> Watch {
        let (Some(id), Some(lane)) = (id, self.lanes.get(&lane)) else {
            return Watch::No;
        };
        if self.begun.contains_key(id) {
            return Watch::Alone;
        }
        let near = arrival.saturating_sub(lane.processed) <= self.window;
        match lane.suspicious == Some(true) && near {
            true => Watch::Begins,
            false => Watch::No,
        }
    }

    /// How often the event killed the process, if that was too often.
    pub(super) fn deaths(&self, id: Option<&EventId>) -> Option<u32> {
        let deaths = *self.begun.get(id?)?;
        (deaths >= self.deaths_max).then_some(deaths)
    }

    /// The event is finished.
    pub(super) fn done(&mut self, id: Option<&EventId>) {
        if let Some(id) = id {
            self.begun.remove(id);
        }
    }

    /// An event of this lane was processed before.
    pub(super) fn processed(&mut self, lane: u64) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.processed += 1;
        }
    }
}

/// The reason and the error text for the dead letter.
pub(super) fn told(deaths: u32) -> (&'static str, String) {
    let error = format!(
        "the process died {deaths} times while it handled this event; the last times it handled nothing else"
    );
    (letter::DIED, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "own";
    const OTHER: &str = "other";
    const EVENT: &str = "event";

    fn row(id: &str, times: u32) -> Begun {
        let id = id.into();
        Begun { id, times }
    }

    #[test]
    fn without_crashes_there_are_no_suspects() {
        let mut suspects = Suspects::new(3, 10);
        assert_eq!(suspects.arrived(0), 1);
        assert!(suspects.wants_look());
        suspects.looked(&[row(OWN, 0)], &OWN.into());
        assert!(!suspects.wants_look());
        assert_eq!(suspects.watch(0, 1, Some(&EVENT.into())), Watch::No);
    }

    #[test]
    fn after_a_death_the_first_that_are_not_processed_are_suspected() {
        let mut suspects = Suspects::new(3, 10);
        suspects.arrived(0);
        suspects.looked(&[row(OWN, 0), row(OTHER, 0)], &OWN.into());
        assert_eq!(suspects.watch(0, 20, Some(&EVENT.into())), Watch::Begins);
        assert_eq!(suspects.watch(0, 21, Some(&EVENT.into())), Watch::No);
        suspects.processed(0);
        assert_eq!(suspects.watch(0, 21, Some(&EVENT.into())), Watch::Begins);
        assert_eq!(
            suspects.watch(0, 1, None),
            Watch::No,
            "what is no event has no handler"
        );
        // A new lane, after the first one was revoked.
        suspects.arrived(1);
        assert!(suspects.wants_look());
        suspects.looked(&[row(OWN, 0)], &OWN.into());
        assert_eq!(suspects.watch(1, 1, Some(&EVENT.into())), Watch::No);
        assert_eq!(
            suspects.watch(0, 1, Some(&EVENT.into())),
            Watch::Begins,
            "a lane stays what it is"
        );
    }

    #[test]
    fn a_suspect_is_tried_alone_until_it_killed_too_often() {
        let mut suspects = Suspects::new(3, 10);
        suspects.arrived(0);
        suspects.looked(&[row(EVENT, 2)], &OWN.into());
        assert_eq!(suspects.watch(0, 1, Some(&EVENT.into())), Watch::Alone);
        assert_eq!(suspects.deaths(Some(&EVENT.into())), None);
        suspects.looked(&[row(EVENT, 3)], &OWN.into());
        assert_eq!(suspects.deaths(Some(&EVENT.into())), Some(3));
        suspects.done(Some(&EVENT.into()));
        assert_eq!(
            (
                suspects.watch(0, 1, Some(&EVENT.into())),
                suspects.deaths(Some(&EVENT.into()))
            ),
            (Watch::No, None)
        );
    }

    #[test]
    fn without_a_limit_there_are_no_suspects() {
        let mut suspects = Suspects::new(0, 10);
        suspects.arrived(0);
        assert!(!suspects.wants_look());
        assert_eq!(suspects.watch(0, 1, Some(&EVENT.into())), Watch::No);
    }
}
