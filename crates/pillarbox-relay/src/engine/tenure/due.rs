//! Reads due events from the side table and admits them to the window.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        destinations::DestinationId,
        examine::{self, Examined, Objection},
        watch::Job,
        window::Entry,
    },
    Done, End, Tenure,
};
use crate::{
    event::Seq,
    store::{Due, DuePlace, StoreError},
};

/// How often to look for due events when none is known. Another process may have added some.
const DUE_INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause after a round through all due events that admitted none.
const DUE_REST_MAX: Duration = Duration::from_secs(5);
/// The shortest wait. Without it, due events that were skipped would be read again at once.
const DUE_WAIT_MIN: Duration = Duration::from_millis(20);

impl Tenure<'_> {
    pub(super) fn can_take_due(&self) -> bool {
        let (events, bytes) = self.window.load();
        let options = &self.context.options;
        !self.side_table_busy && events < options.window_events_max && bytes < options.window_bytes_max
    }

    pub(super) fn start_due(&mut self) {
        let now = Instant::now();
        if self.due_at > now || !self.can_take_due() {
            return;
        }
        self.side_table_busy = true;
        if self.due_after.is_none() {
            self.due_round = now;
        }
        let room_bytes = self.context.options.window_bytes_max - self.window.load().1;
        let (store, lanes, after, limit) = (
            self.context.store.clone(),
            self.lanes.clone(),
            self.due_after,
            self.limit(room_bytes),
        );
        let checks = self.context.options.checks.clone();
        self.spawn(Job::Due, async move {
            let due = async {
                let found = store.due(&lanes, after, limit).await?;
                let events = found.events.iter().map(|due| &due.event);
                let objections = examine::again(checks.as_ref(), events).await?;
                Ok(Examined { found, objections })
            };
            Done::Due(due.await)
        });
    }

    pub(super) fn admit_due(&mut self, due: Examined<Due>) {
        let Examined {
            found: due,
            mut objections,
        } = due;
        let (more_after, next) = (due.more_after, due.next);
        let holding = self.admit_unreadable(due.unreadable, None);
        let mut waiting = None;
        let mut admitted = 0;
        for due in due.events {
            let key = (due.event.lane, due.event.event.key().to_owned());
            // If an earlier event of this key waits, the store will return this one again later. An event that is
            // already in the window was checked when it was admitted.
            let holds = |(held_key, seq): &(_, Seq)| *held_key == key && *seq < due.event.seq;
            let behind = !due.delayed && (waiting.as_ref() == Some(&key) || holding.iter().any(holds));
            if behind || self.window.has_parked(due.event.seq) {
                continue;
            }
            let objection = objections.remove(&due.event.seq);
            let target = self.target(&due.event);
            if due.event.seq > self.reached
                || target
                    .as_ref()
                    .is_some_and(|target| self.has_trial(target.destination))
            {
                if !due.delayed {
                    waiting = Some(key);
                }
                continue;
            }
            admitted += 1;
            let Some(target) = target else {
                let dead = self.no_route(&due.event, Some(key.1));
                self.window.admit_dead(dead, None);
                continue;
            };
            match objection {
                Some(Objection::Reject { error }) => {
                    let mut dead = self.rejected(&due.event, &target, error);
                    dead.key = Some(key.1.clone());
                    if dead.holds_its_key() {
                        waiting = Some(key);
                    }
                    self.window.admit_dead(dead, None);
                }
                Some(Objection::Wait { error, retry_in }) => {
                    if !due.delayed {
                        waiting = Some(key);
                    }
                    let entry = Entry::new(due.event, target, None);
                    self.admit_unchecked(entry, due.delayed, error, retry_in);
                }
                None => {
                    // One event is enough for the trial of a paused destination.
                    if self.is_paused_within_limit(target.destination) && !due.delayed {
                        waiting = Some(key);
                    }
                    self.window
                        .admit_parked(Entry::new(due.event, target, None), due.delayed);
                }
            }
        }
        self.look_at_due_again(more_after, next, admitted);
    }

    /// Whether a paused destination already has an event for its trial. Its other events stay in the side table. If its
    /// only event may be the reason itself, another one is read: otherwise one bad event could pause it for ever.
    pub(super) fn has_trial(&self, destination: DestinationId) -> bool {
        self.is_paused_within_limit(destination)
            && (self.window.has_good_trial(destination) || self.trying.contains(&destination))
    }

    pub(super) fn look_at_due_again(
        &mut self,
        more_after: Option<DuePlace>,
        next: Option<Duration>,
        admitted: usize,
    ) {
        let now = Instant::now();
        let long_round = self.due_after.is_some() && more_after.is_none();
        self.due_after = more_after;
        let wait = match more_after {
            Some(_) => Duration::ZERO,
            // A long round that admitted nothing is not repeated at once.
            None if long_round => (now - self.due_round)
                .mul_f64(4.0)
                .clamp(DUE_INTERVAL, DUE_REST_MAX),
            // The store returns admitted events until they are settled. Settling triggers the next read.
            None if admitted > 0 => DUE_INTERVAL,
            None => next.map_or(DUE_INTERVAL, |next| next.clamp(DUE_WAIT_MIN, DUE_INTERVAL)),
        };
        self.due_at = now + wait;
    }

    pub(super) fn apply_due(&mut self, result: Result<Examined<Due>, StoreError>) {
        self.side_table_busy = false;
        match result {
            Ok(due) if self.ending.is_none() => self.admit_due(due),
            Ok(_) => {}
            Err(error) => self.end(End::Store(error)),
        }
    }
}
