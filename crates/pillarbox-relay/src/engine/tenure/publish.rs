//! Starts batches for destinations that accept events, trials for paused ones, and checks of sinks that are away.
//! Applies the answers.

use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use tokio::time::Instant;

use super::{
    super::{
        RelayError,
        destinations::{Destination, DestinationId},
        sink_slot::{self, Judging},
        watch::Job,
        window::{Entry, Resolution},
    },
    Done, End, Tenure,
};
use crate::{
    sink::{Outcome, SinkError},
    trace::Sending,
};

/// If a destination is paused for this long, its events move to the side table, so that they block neither the window
/// nor the low mark.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// If the trial of a paused destination is overdue by this much, the relay has no events for it. Those in the side
/// table are due every second.
const TRIAL_OVERDUE: Duration = Duration::from_secs(30);
/// An event that may itself be the reason of a failure waits this long for others to be sent with it.
const COMPANY_WAIT: Duration = Duration::from_millis(500);
/// A destination that answered within this time counts as working.
const WORKED_LATELY: Duration = Duration::from_secs(60);
/// Parked events are due again after this. They are skipped while their destination is paused.
const PARKED_FOR: Duration = Duration::from_secs(1);

impl Tenure<'_> {
    pub(super) fn start_publishing(&mut self) {
        for sink in 0..self.slots.len() {
            self.start_batches(sink);
            self.start_trial(sink);
        }
    }

    /// Starts batches for the destinations that accept events.
    pub(super) fn start_batches(&mut self, sink: usize) {
        let batches_max = self.slots[sink]
            .health
            .batches_max(self.context.options.publishers_max);
        while self.in_flight[sink].batches < batches_max && self.leases.is_valid() {
            let mut open: Vec<DestinationId> = self.destinations.of_sink(sink).to_vec();
            open.retain(|&number| {
                self.window.has_ready(number)
                    && !self.is_paused_within_limit(number)
                    && !self.waits_for_company(number)
            });
            if open.is_empty() {
                return;
            }
            // Rotate the destinations, so that a busy one does not delay the others.
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn % open.len();
            open.rotate_left(first);
            let max = self.slots[sink].batch_events_max(&self.context.options);
            let batch = self.window.take_batch(open, max);
            self.in_flight[sink].batches += 1;
            self.publish(sink, batch, false);
        }
    }

    /// Whether all events that are ready may be at fault, and the destination has just accepted another one. An event that
    /// is sent alone is never found to be at fault, so wait a little for others.
    fn waits_for_company(&self, number: DestinationId) -> bool {
        let destination = self.destinations.get(number);
        let lately = |at: Instant| at.elapsed() < COMPANY_WAIT;
        !self.slots[destination.sink].sink.capabilities().ordered
            && !self.window.has_good_trial(number)
            && destination.answered_at.is_some_and(lately)
    }

    /// Starts one batch with an event for each paused destination whose trial is due. It runs beside the other batches,
    /// because it may get no answer for a long time.
    pub(super) fn start_trial(&mut self, sink: usize) {
        let health = &self.slots[sink].health;
        let room = match self.in_flight[sink].publishing() {
            0 => !health.is_down(),
            _ => health.batches_max(2) > 1 && !self.in_flight[sink].trial,
        };
        if !room || !self.leases.is_valid() {
            return;
        }
        let now = Instant::now();
        let max = self.slots[sink].batch_events_max(&self.context.options);
        let mut batch = Vec::new();
        for &number in self.destinations.of_sink(sink) {
            let due = self.destinations.get(number).health.next_trial();
            if batch.len() < max
                && due.is_some_and(|at| at <= now)
                && self.is_paused_within_limit(number)
                && let Some(entry) = self.window.take_trial(number)
            {
                self.trying.insert(number);
                batch.push(entry);
            }
        }
        if !batch.is_empty() {
            self.in_flight[sink].trial = true;
            self.publish(sink, batch, true);
        }
    }

    pub(super) fn publish(&mut self, sink: usize, batch: Vec<super::Entry>, trial: bool) {
        let slot = &self.slots[sink];
        let (client, name, answer_max) = (
            slot.sink.clone(),
            slot.name.clone(),
            self.context.options.stall_after,
        );
        let progress = self.context.progress.clone();
        let traces = self.context.options.traces.clone();
        let traces = traces.map(|traces| (traces, self.rng.random()));
        let clock = self.context.options.clock;
        self.spawn(Job::Publish, async move {
            let events = || batch.iter().map(|entry| &*entry.event);
            let mut sending =
                traces.and_then(|(traces, seed)| traces.begin(&name, events(), clock(), seed, trial));
            let began = Instant::now();
            let outcomes = sink_slot::publish(client, &batch, sending.as_ref(), answer_max).await;
            progress.recorded.answered(&name, began.elapsed());
            if let Some(sending) = &mut sending {
                sending.answered(events(), &outcomes, clock());
            }
            Done::Published {
                slot: sink,
                batch,
                outcomes,
                sending,
                trial,
            }
        });
    }

    pub(super) fn apply_outcomes(
        &mut self,
        slot: usize,
        batch: Vec<Entry>,
        outcomes: Vec<Outcome>,
        sending: Option<Sending>,
        trial: bool,
    ) {
        let flight = &mut self.in_flight[slot];
        if trial {
            flight.trial = false;
            for entry in &batch {
                self.trying.remove(&entry.target.destination);
            }
        } else {
            flight.batches -= 1;
        }
        let paused_before = self.destinations.paused().count();
        let progress = &self.context.progress;
        let now = (self.context.options.clock)();
        let mut judging = Judging {
            destinations: self.destinations,
            policy: &self.context.options.retry,
            destination_outage_max: self.context.options.destination_outage_max,
            now,
            rng: self.rng,
            progress,
        };
        match self.slots[slot].resolve(batch, outcomes, trial, &mut judging) {
            Ok(resolved) => {
                let delivered = |(_, resolution): &&(_, _)| *resolution == Resolution::Delivered;
                progress.delivered(resolved.iter().filter(delivered).count());
                if let Some(sending) = sending {
                    trace_failures(&sending, &resolved, now);
                }
                self.window.complete(resolved);
            }
            Err(error) => self.end_if_misconfigured(slot, Err(error)),
        }
        // The destination accepts events again, so its events in the side table can be sent now.
        if self.destinations.paused().count() < paused_before {
            self.due_at = Instant::now();
            self.due_after = None;
        }
    }

    /// A paused destination can lose its last event: another relay took over its lanes, or somebody discarded its
    /// events. Then there is nothing to try it with, and it must not be reported as paused for ever. Its next event
    /// shows its health.
    pub(super) fn forget_pauses_without_events(&mut self) {
        let now = Instant::now();
        let idle = |(number, paused): &(DestinationId, &Destination)| {
            let overdue = paused
                .health
                .next_trial()
                .is_some_and(|at| now > at + TRIAL_OVERDUE);
            overdue
                && !self.slots[paused.sink].health.is_down()
                && !self.trying.contains(number)
                && !self.window.has_ready(*number)
        };
        let idle: Vec<DestinationId> = self
            .destinations
            .paused()
            .filter(idle)
            .map(|(number, _)| number)
            .collect();
        for number in idle {
            let destination = self.destinations.get_mut(number);
            destination.health.answered(now);
            self.context.progress.destination_is(&destination.label, None);
        }
    }

    /// Whether it is paused, but not for so long that its events must die. After the limit its events go into normal
    /// batches, where a failure kills them.
    pub(super) fn is_paused_within_limit(&self, number: DestinationId) -> bool {
        let paused = self.destinations.get(number).health.paused_for(Instant::now());
        let max = self.context.options.destination_outage_max;
        paused.is_some_and(|paused| max.is_none_or(|max| paused <= max))
    }

    /// Future trials only. If a trial is due and has no room, the next answer of the sink starts it.
    pub(super) fn next_trials(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let ready = self
            .destinations
            .paused()
            .filter(|(number, _)| self.window.has_ready(*number));
        ready
            .filter_map(|(_, paused)| paused.health.next_trial())
            .filter(move |at| *at > now)
    }

    pub(super) fn start_checks(&mut self) {
        let now = Instant::now();
        for index in 0..self.slots.len() {
            let due = self.slots[index].next_check();
            if !self.in_flight[index].check && due.is_some_and(|at| at <= now) {
                self.in_flight[index].check = true;
                let sink = self.slots[index].sink.clone();
                self.spawn(Job::Check, async move {
                    Done::Checked {
                        slot: index,
                        result: sink_slot::check(sink).await,
                    }
                });
            }
        }
    }

    pub(super) fn apply_check(&mut self, slot: usize, result: Result<(), SinkError>) {
        self.in_flight[slot].check = false;
        let checked = self.slots[slot].checked(result, &self.context.progress);
        self.end_if_misconfigured(slot, checked);
    }

    pub(super) fn next_checks(&self) -> impl Iterator<Item = Instant> {
        let slots = self.slots.iter().zip(&self.in_flight);
        slots
            .filter(|(_, flight)| !flight.check)
            .filter_map(|(slot, _)| slot.next_check())
    }

    pub(super) fn end_if_misconfigured(&mut self, slot: usize, result: Result<(), SinkError>) {
        if let Err(error) = result {
            let sink = self.slots[slot].name.to_string();
            self.end(End::Fatal(RelayError::Sink { sink, error }));
        }
    }

    /// A sink that is away must not fill the window, because other sinks would wait. Its events are dropped from
    /// memory, and a new tenure reads them when it is back. With only one sink nothing is dropped: the window stays full,
    /// and later events wait in the table.
    pub(super) fn close_what_is_away(&mut self) {
        let full = !self.has_room();
        let others_work = self.slots.iter().any(|slot| !slot.health.is_down());
        for (index, slot) in self.slots.iter().enumerate() {
            let away = slot.health.is_down() && self.in_flight[index].publishing() == 0;
            let waits = || {
                let numbers = self.destinations.of_sink(index).iter();
                numbers.copied().any(|number| self.window.has_ready(number))
            };
            if away && full && others_work && waits() {
                tracing::info!(
                    sink = &*slot.name,
                    "leaving the events of this sink in the store until it is back; other sinks continue"
                );
                self.window.close(index);
            }
        }
        let back =
            |(index, slot): (usize, &super::SinkSlot)| self.window.is_closed(index) && !slot.health.is_down();
        if self.slots.iter().enumerate().any(back) {
            self.end(End::Regroup { surplus: 0 });
        }
    }

    /// A paused destination must not fill the window or keep the low mark back either. A short pause costs no write:
    /// its events wait in the window, later ones in the table.
    pub(super) fn park_what_is_paused(&mut self) {
        let now = Instant::now();
        let full = !self.has_room();
        let others_work = full
            && self.destinations.iter().any(|(_, other)| {
                let lately = |at| now.saturating_duration_since(at) < WORKED_LATELY;
                !other.health.is_paused() && other.answered_at.is_some_and(lately)
            });
        let mut parked = Vec::new();
        for (number, destination) in self.destinations.paused() {
            let long = destination
                .health
                .paused_for(now)
                .is_some_and(|time| time >= PARK_AFTER);
            if (long || others_work) && self.is_paused_within_limit(number) && self.window.can_park(number) {
                let why = destination.health.why().unwrap_or_default().to_owned();
                parked.push((number, self.slots[destination.sink].failed(why)));
            }
        }
        for (number, failure) in parked {
            self.window.park(number, &failure, PARKED_FOR);
        }
    }
}

/// The attempts themselves are traced when the sink answers, and so are deliveries.
fn trace_failures(sending: &Sending, resolved: &[(Entry, Resolution)], now: Timestamp) {
    for (index, (entry, resolution)) in resolved.iter().enumerate() {
        let death = match resolution {
            Resolution::Delivered | Resolution::Returned => continue,
            Resolution::Retry { .. } => None,
            Resolution::Dead { reason, failure } => Some((*reason, failure)),
        };
        sending.failed(index, &entry.event, death, now);
    }
}
