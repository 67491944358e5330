//! Which events may have taken a process with them. No I/O.
//!
//! What a process had at work when it died lies among the first events that are not processed: those that it held in memory.
//! So after a start these are *suspects*: before the handler of one begins, a row says so, and the transaction of its effect
//! deletes it. A row that is there at the next start is of an event that was at work when the process died, and of these only one is
//! the culprit. So each of them is tried alone, with no other handler at work: an innocent one passes, and only the culprit's
//! count goes on rising, until it is a dead letter.
//!
//! Nothing is written where nobody died: consumers have rows of their own, which they delete when they leave in order, and
//! without a stranger's row there are no suspects.

use std::collections::HashMap;

use uuid::Uuid;

use super::letter;
use crate::inbox::Begun;

#[derive(Debug)]
pub(super) struct Suspects {
    /// 0: nobody is suspected.
    deaths_max: u32,
    /// As many messages of a lane can have come before one that was at work when the process died.
    window: u64,
    lanes: HashMap<u64, Lane>,
    /// How often events have begun that did not end.
    begun: HashMap<Uuid, u32>,
    /// A lane has come of whose events nobody knows yet whether they began before.
    look: bool,
}

#[derive(Debug, Default)]
struct Lane {
    arrived: u64,
    /// Of these, so many were processed before.
    processed: u64,
    /// `None`: it was not looked at yet.
    suspicious: Option<bool>,
}

/// How an event is to be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// As always.
    No,
    /// Its beginning is written down.
    Begins,
    /// That too, and nothing else is at work.
    Alone,
}

impl Suspects {
    /// `held_max`: what a consumer of this group holds in memory at most.
    pub(super) fn new(deaths_max: u32, held_max: usize) -> Self {
        Self {
            deaths_max,
            // Those that were held, and as many that are held now, of which it is not known yet that they are processed.
            window: 2 * held_max as u64,
            lanes: HashMap::new(),
            begun: HashMap::new(),
            look: false,
        }
    }

    /// A message has come. Says which one of its lane it is.
    pub(super) fn arrived(&mut self, lane: u64) -> u64 {
        let lane = self.lanes.entry(lane).or_default();
        self.look |= lane.suspicious.is_none() && self.deaths_max > 0;
        lane.arrived += 1;
        lane.arrived
    }

    pub(super) fn left(&mut self, lane: u64) {
        self.lanes.remove(&lane);
    }

    /// Whether the rows have to be looked at before anything begins.
    pub(super) fn wants_look(&self) -> bool {
        self.look
    }

    /// The rows, and which of them is this consumer's own.
    pub(super) fn looked(&mut self, rows: &[Begun], own: Uuid) {
        self.look = false;
        let strangers = rows.iter().any(|row| row.times == 0 && row.id != own);
        for lane in self.lanes.values_mut() {
            lane.suspicious.get_or_insert(strangers);
        }
        let begun = rows.iter().filter(|row| row.times > 0);
        self.begun = begun.map(|row| (row.id, row.times)).collect();
    }

    /// How the event `id` is to be tried, which came as the `arrival`th of its lane.
    pub(super) fn watch(&self, lane: u64, arrival: u64, id: Option<Uuid>) -> Watch {
        let (Some(id), Some(lane)) = (id, self.lanes.get(&lane)) else {
            return Watch::No;
        };
        if self.begun.contains_key(&id) {
            return Watch::Alone;
        }
        let near = arrival.saturating_sub(lane.processed) <= self.window;
        match lane.suspicious == Some(true) && near {
            true => Watch::Begins,
            false => Watch::No,
        }
    }

    /// How often it took the process with it, when that was too often.
    pub(super) fn deaths(&self, id: Option<Uuid>) -> Option<u32> {
        let deaths = *self.begun.get(&id?)?;
        (deaths >= self.deaths_max).then_some(deaths)
    }

    /// It is through.
    pub(super) fn done(&mut self, id: Option<Uuid>) {
        if let Some(id) = id {
            self.begun.remove(&id);
        }
    }

    /// One of this lane was processed before.
    pub(super) fn processed(&mut self, lane: u64) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.processed += 1;
        }
    }
}

/// What a dead letter says.
pub(super) fn told(deaths: u32) -> (&'static str, String) {
    let error =
        format!("the process died {deaths} times while it was at work, the last times with nothing else");
    (letter::DIED, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);
    const EVENT: Uuid = Uuid::from_u128(3);

    fn row(id: Uuid, times: u32) -> Begun {
        Begun { id, times }
    }

    #[test]
    fn where_everybody_left_in_order_nobody_is_suspected() {
        let mut suspects = Suspects::new(3, 10);
        assert_eq!(suspects.arrived(0), 1);
        assert!(suspects.wants_look());
        suspects.looked(&[row(OWN, 0)], OWN);
        assert!(!suspects.wants_look());
        assert_eq!(suspects.watch(0, 1, Some(EVENT)), Watch::No);
    }

    #[test]
    fn after_a_death_the_first_that_are_not_processed_are_suspected() {
        let mut suspects = Suspects::new(3, 10);
        suspects.arrived(0);
        suspects.looked(&[row(OWN, 0), row(OTHER, 0)], OWN);
        assert_eq!(suspects.watch(0, 20, Some(EVENT)), Watch::Begins);
        assert_eq!(suspects.watch(0, 21, Some(EVENT)), Watch::No);
        suspects.processed(0);
        assert_eq!(suspects.watch(0, 21, Some(EVENT)), Watch::Begins);
        assert_eq!(
            suspects.watch(0, 1, None),
            Watch::No,
            "what is no event has no handler"
        );
        // Another lane, when the other has left.
        suspects.arrived(1);
        assert!(suspects.wants_look());
        suspects.looked(&[row(OWN, 0)], OWN);
        assert_eq!(suspects.watch(1, 1, Some(EVENT)), Watch::No);
        assert_eq!(
            suspects.watch(0, 1, Some(EVENT)),
            Watch::Begins,
            "a lane stays what it is"
        );
    }

    #[test]
    fn what_was_at_work_at_a_death_is_tried_alone_until_it_was_too_often() {
        let mut suspects = Suspects::new(3, 10);
        suspects.arrived(0);
        suspects.looked(&[row(EVENT, 2)], OWN);
        assert_eq!(suspects.watch(0, 1, Some(EVENT)), Watch::Alone);
        assert_eq!(suspects.deaths(Some(EVENT)), None);
        suspects.looked(&[row(EVENT, 3)], OWN);
        assert_eq!(suspects.deaths(Some(EVENT)), Some(3));
        suspects.done(Some(EVENT));
        assert_eq!(
            (suspects.watch(0, 1, Some(EVENT)), suspects.deaths(Some(EVENT))),
            (Watch::No, None)
        );
    }

    #[test]
    fn with_no_limit_nobody_looks() {
        let mut suspects = Suspects::new(0, 10);
        suspects.arrived(0);
        assert!(!suspects.wants_look());
        assert_eq!(suspects.watch(0, 1, Some(EVENT)), Watch::No);
    }
}
