//! Into the window: pages of discovery, due events of the side table, rows that can't be read.

use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use tokio::time::Instant;

use super::{
    super::{
        destinations::DestinationId,
        examine::{Examined, Objection},
        window::{Entry, Way},
    },
    DUE_INTERVAL, Tenure,
};
use crate::{
    event::{Lane, Seq, StoredEvent, Unreadable},
    route::AfterDeath,
    settlement::{Dead, DeadReason, FailedTry},
    store::{Due, DuePlace, Page},
};

/// The longest rest after a round through all due events that brought none.
const DUE_REST_MAX: Duration = Duration::from_secs(5);
/// Events that are due and passed over would else be asked for again at once.
const DUE_WAIT_MIN: Duration = Duration::from_millis(20);

impl Tenure<'_> {
    pub(super) fn admit_page(&mut self, page: Examined<Page>) {
        let Examined {
            found: page,
            mut objections,
        } = page;
        let seqs = page
            .events
            .iter()
            .map(|event| event.seq)
            .chain(page.unreadable.iter().map(|row| row.seq));
        let number = self.window.open_page(seqs, page.decided);
        if page.reached > self.reached {
            self.reached = page.reached;
            // What was passed over in the side table may go out now.
            self.due_at = Instant::now();
        }
        self.context
            .progress
            .read(page.events.len() + page.unreadable.len());
        // First: where they hold their keys, nothing from behind them may go out.
        self.admit_unreadable(page.unreadable, Some(number));
        let now = (self.context.options.clock)();
        for event in page.events {
            let objection = objections.remove(&event.seq);
            self.admit(event, objection, number, now);
        }
    }

    fn admit(&mut self, event: StoredEvent, objection: Option<Objection>, page: u64, now: Timestamp) {
        let Some(way) = self.way(&event) else {
            let dead = self.no_route(&event, None);
            self.window.admit_dead(dead, Some(page));
            return;
        };
        if let Some(Objection::Reject { error }) = objection {
            let dead = self.rejected(&event, way.after_death, error);
            self.window.admit_dead(dead, Some(page));
            return;
        }
        let later = event.event.available_at.filter(|&at| at > now);
        let entry = Entry::new(event, way, Some(page));
        match (later, objection) {
            // It is looked at again when its time has come.
            (Some(available_at), _) => self.window.admit_delayed(entry, available_at),
            (None, Some(Objection::Wait { error, retry_in })) => {
                self.admit_waiting(entry, false, error, retry_in)
            }
            (None, _) => self.window.admit(entry),
        }
    }

    /// Where an event goes. `None`: no route takes it.
    fn way(&mut self, event: &StoredEvent) -> Option<Way> {
        let route = self.context.routes.destination(&event.event)?;
        let sink = *self.context.indexes.get(&route.sink)?;
        let desk = &self.desks[sink];
        let name = desk.sink.destination(&event.event, route.stream.as_deref());
        Some(Way {
            sink,
            destination: self.destinations.number(sink, &desk.name, name),
            stream: route.stream,
            envelope: route.envelope,
            after_death: route.after_death,
        })
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
            // Behind one of its key that waits: the store brings it again, when that one has gone. And what is in the
            // window already passed the checks as they were then.
            let held = |(held, seq): &(_, Seq)| *held == key && *seq < due.event.seq;
            let behind = !due.delayed && (waiting.as_ref() == Some(&key) || holding.iter().any(held));
            if behind || self.window.has_parked(due.event.seq) {
                continue;
            }
            let objection = objections.remove(&due.event.seq);
            let way = self.way(&due.event);
            if due.event.seq > self.reached || way.as_ref().is_some_and(|way| self.has_scout(way.destination))
            {
                if !due.delayed {
                    waiting = Some(key);
                }
                continue;
            }
            admitted += 1;
            let Some(way) = way else {
                let dead = self.no_route(&due.event, Some(key.1));
                self.window.admit_dead(dead, None);
                continue;
            };
            match objection {
                Some(Objection::Reject { error }) => {
                    let mut dead = self.rejected(&due.event, way.after_death, error);
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
                    let entry = Entry::new(due.event, way, None);
                    self.admit_waiting(entry, due.delayed, error, retry_in);
                }
                None => {
                    // Of a paused destination one event is enough, to try it with.
                    if self.waits_for_trial(way.destination) && !due.delayed {
                        waiting = Some(key);
                    }
                    self.window
                        .admit_parked(Entry::new(due.event, way, None), due.delayed);
                }
            }
        }
        self.look_at_due_again(more_after, next, admitted);
    }

    /// A paused destination with an event here to try it with. Its other events stay in the side table.
    fn has_scout(&self, destination: DestinationId) -> bool {
        self.waits_for_trial(destination)
            && (self.window.has_ready(destination) || self.trying.contains(&destination))
    }

    fn look_at_due_again(&mut self, more_after: Option<DuePlace>, next: Option<Duration>, admitted: usize) {
        let now = Instant::now();
        let long_round = self.due_after.is_some() && more_after.is_none();
        self.due_after = more_after;
        let wait = match more_after {
            Some(_) => Duration::ZERO,
            // A round of many pages that brings nothing is not worth repeating at once.
            None if long_round => (now - self.due_round)
                .mul_f64(4.0)
                .clamp(DUE_INTERVAL, DUE_REST_MAX),
            // What was brought is returned until it is settled, and settling asks again.
            None if admitted > 0 => DUE_INTERVAL,
            None => next.map_or(DUE_INTERVAL, |next| next.clamp(DUE_WAIT_MIN, DUE_INTERVAL)),
        };
        self.due_at = now + wait;
    }

    /// Returns the keys that these hold back, each with the seq of the one that does.
    fn admit_unreadable(&mut self, rows: Vec<Unreadable>, page: Option<u64>) -> Vec<((Lane, String), Seq)> {
        let mut holding = Vec::new();
        for row in rows {
            tracing::warn!(
                seq = row.seq,
                problem = row.problem,
                "a stored event can't be read: dead letter"
            );
            // Only a route that holds the key needs to know it: the side table does as well.
            let after = row
                .topic
                .as_ref()
                .map_or(AfterDeath::Skip, |topic| self.context.routes.after_death(topic));
            let key = row.key.filter(|_| after != AfterDeath::Skip);
            let dead = Dead {
                seq: row.seq,
                lane: row.lane,
                after: if key.is_some() { after } else { AfterDeath::Skip },
                key,
                attempts: 0,
                reason: DeadReason::PoisonMessage,
                failure: self.untried(row.problem),
                tried: false,
            };
            if let (true, Some(key)) = (dead.holds_its_key(), &dead.key) {
                holding.push(((dead.lane, key.clone()), dead.seq));
            }
            self.window.admit_dead(dead, page);
        }
        holding
    }

    /// Events that discovery should have brought: delivered all the same, and told, as it should never happen.
    pub(super) fn admit_missed(&mut self, missed: Examined<Vec<StoredEvent>>) {
        let objections = missed.objections;
        let missed: Vec<StoredEvent> = missed
            .found
            .into_iter()
            .filter(|event| !self.window.may_hold(event.seq))
            .collect();
        if missed.is_empty() || self.ending.is_some() || !self.window.is_whole() {
            return;
        }
        tracing::error!(
            count = missed.len(),
            "the sweep found events that discovery had missed: delivering them"
        );
        self.context.progress.swept(missed.len());
        let decided = self.window.decided().0;
        let found = Page {
            events: missed,
            decided,
            ..Page::default()
        };
        self.admit_page(Examined { found, objections });
    }

    /// An event that can't be checked now. No attempt is counted: it is not its fault.
    fn admit_waiting(&mut self, entry: Entry, delayed: bool, error: String, retry_in: Duration) {
        // Those that began to wait together need not come back together.
        let retry_in = retry_in.mul_f64(self.rng.random_range(0.75..1.25));
        let failure = self.untried(error);
        self.window.admit_waiting(entry, delayed, failure, retry_in);
    }

    fn rejected(&self, event: &StoredEvent, after: AfterDeath, error: String) -> Dead {
        Dead {
            seq: event.seq,
            lane: event.lane,
            key: (after != AfterDeath::Skip).then(|| event.event.key().to_owned()),
            after,
            attempts: event.attempts,
            reason: DeadReason::SchemaValidationFailed,
            failure: self.untried(error),
            tried: false,
        }
    }

    fn no_route(&self, event: &StoredEvent, key: Option<String>) -> Dead {
        let error = format!(
            "no route takes the topic `{}`: add one to `routes`, then replay the event",
            event.event.topic
        );
        Dead {
            seq: event.seq,
            lane: event.lane,
            key,
            after: AfterDeath::Skip,
            attempts: event.attempts,
            reason: DeadReason::PermanentFailure,
            failure: self.untried(error),
            tried: false,
        }
    }

    fn untried(&self, error: String) -> FailedTry {
        FailedTry {
            error,
            sink: None,
            relay: self.context.options.name.as_str().into(),
        }
    }
}
