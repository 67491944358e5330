//! What a tenure can start now, and when it can start something else.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        destinations::DestinationId,
        examine::{self, Examined},
        publish, sweep,
        watch::Job,
    },
    Done, End, SETTLE_EVENTS, SETTLE_LINGER, Tenure,
};
use crate::store::PageLimit;

/// What waits for a destination that has been paused for this long goes into the side table, so that it pins neither the
/// window nor the low mark.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// A destination that answered within this time counts as one that works.
const WORKED_LATELY: Duration = Duration::from_secs(60);
/// Parked events are due again after this. They are passed over for as long as their destination is paused.
const PARKED_FOR: Duration = Duration::from_secs(1);

impl Tenure<'_> {
    pub(super) fn start_what_can_start(&mut self) {
        if !self.tenancy.is_beating() && self.beat.start() {
            self.tenancy.mark(self.window.low_mark());
            self.tenancy.start_beat();
        }
        if self.ending.is_none() {
            self.close_what_is_away();
            self.park_what_is_paused();
            self.start_publishing();
            self.start_checks();
            self.ask_for_more();
            self.start_sweep();
            self.start_report();
        }
        self.start_settling();
        if self.ending.is_none() {
            self.start_due();
        }
    }

    fn start_publishing(&mut self) {
        for sink in 0..self.desks.len() {
            self.start_batches(sink);
            self.start_trial(sink);
        }
    }

    /// Batches for the destinations that take events.
    fn start_batches(&mut self, sink: usize) {
        let batches_max = self.desks[sink]
            .health
            .batches_max(self.context.options.publishers_max);
        while self.in_flight[sink].batches < batches_max && self.tenancy.is_valid() {
            let mut open: Vec<DestinationId> = self.destinations.of_sink(sink).to_vec();
            open.retain(|&number| self.window.has_ready(number) && !self.waits_for_trial(number));
            if open.is_empty() {
                return;
            }
            // Each is the first at times: a busy one must not keep the others waiting.
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn % open.len();
            open.rotate_left(first);
            let batch = self
                .window
                .take_batch(open, self.context.options.batch_events_max);
            self.in_flight[sink].batches += 1;
            self.publish(sink, batch, false);
        }
    }

    /// One event for each paused destination whose time has come, in one batch. It has a place of its own beside the
    /// others, as it may get no answer for long.
    fn start_trial(&mut self, sink: usize) {
        let health = &self.desks[sink].health;
        let room = match self.in_flight[sink].publishing() {
            0 => !health.is_down(),
            _ => health.batches_max(2) > 1 && !self.in_flight[sink].trial,
        };
        if !room || !self.tenancy.is_valid() {
            return;
        }
        let now = Instant::now();
        let mut batch = Vec::new();
        for &number in self.destinations.of_sink(sink) {
            let due = self.destinations.get(number).health.next_trial();
            if batch.len() < self.context.options.batch_events_max
                && due.is_some_and(|at| at <= now)
                && self.waits_for_trial(number)
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

    fn publish(&mut self, sink: usize, batch: Vec<super::Entry>, trial: bool) {
        let (client, answer_max) = (self.desks[sink].sink.clone(), self.context.options.stall_after);
        self.spawn(Job::Publish, async move {
            let outcomes = publish::publish(client, &batch, answer_max).await;
            Done::Published {
                desk: sink,
                batch,
                outcomes,
                trial,
            }
        });
    }

    /// It is paused, and not for so long that its events are to die.
    pub(super) fn waits_for_trial(&self, number: DestinationId) -> bool {
        let paused = self.destinations.get(number).health.paused_for(Instant::now());
        let max = self.context.options.destination_outage_max;
        paused.is_some_and(|paused| max.is_none_or(|max| paused <= max))
    }

    /// A sink that is away must not fill the window, or the others would wait with it. What it leaves to the store is
    /// read again by the tenure that begins when it is back. With one sink the table is the better buffer.
    fn close_what_is_away(&mut self) {
        let full = !self.has_room();
        let others_work = self.desks.iter().any(|desk| !desk.health.is_down());
        for (index, desk) in self.desks.iter().enumerate() {
            let away = desk.health.is_down() && self.in_flight[index].publishing() == 0;
            let waits = || {
                let numbers = self.destinations.of_sink(index).iter();
                numbers.copied().any(|number| self.window.has_ready(number))
            };
            if away && full && others_work && waits() {
                tracing::info!(
                    sink = &*desk.name,
                    "leaving its events in the store until it is back: others go on"
                );
                self.window.close(index);
            }
        }
        let back =
            |(index, desk): (usize, &super::Desk)| self.window.is_closed(index) && !desk.health.is_down();
        if self.desks.iter().enumerate().any(back) {
            self.end(End::Regroup { surplus: 0 });
        }
    }

    /// A paused destination must not fill the window either, nor keep the low mark where it is. A short pause costs no
    /// write: its events wait here, and behind them in the table.
    fn park_what_is_paused(&mut self) {
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
            if (long || others_work) && self.waits_for_trial(number) && self.window.can_park(number) {
                let why = destination.health.why().unwrap_or_default().to_owned();
                parked.push((number, self.desks[destination.sink].failed(why)));
            }
        }
        for (number, failure) in parked {
            self.window.park(number, &failure, PARKED_FOR);
        }
    }

    /// For a good page.
    fn has_room(&self) -> bool {
        let options = &self.context.options;
        let (events, bytes) = self.window.load();
        let room = options.window_events_max.saturating_sub(events);
        let room_bytes = options.window_bytes_max.saturating_sub(bytes);
        room * 4 >= options.window_events_max && room_bytes * 4 >= options.window_bytes_max
    }

    fn start_checks(&mut self) {
        let now = Instant::now();
        for index in 0..self.desks.len() {
            let due = self.desks[index].health.next_check();
            if !self.in_flight[index].check && due.is_some_and(|at| at <= now) {
                self.in_flight[index].check = true;
                let sink = self.desks[index].sink.clone();
                self.spawn(Job::Check, async move {
                    Done::Checked {
                        desk: index,
                        result: publish::check(sink).await,
                    }
                });
            }
        }
    }

    /// Reads on when there is room for a good page; else the table is the buffer.
    fn ask_for_more(&mut self) {
        let options = &self.context.options;
        if self.has_room() && self.window.can_read_on() {
            let (events, bytes) = self.window.load();
            let room = options.window_events_max.saturating_sub(events);
            self.discovery.ask(PageLimit {
                events: room.min(options.page_events_max()),
                ..self.limit(options.window_bytes_max.saturating_sub(bytes))
            });
        }
    }

    fn limit(&self, bytes: usize) -> PageLimit {
        let options = &self.context.options;
        PageLimit {
            events: options.page_events_max(),
            bytes,
            payload_bytes_max: options.payload_bytes_max,
        }
    }

    fn start_settling(&mut self) {
        if self.ledger_busy {
            return;
        }
        let settling = match self.postponed.take() {
            Some((settling, at)) if at <= Instant::now() => settling,
            Some(later) => {
                self.postponed = Some(later);
                return;
            }
            None => {
                let waiting = self.window.unsettled();
                if waiting == 0 {
                    return;
                }
                let since = *self.unsettled_since.get_or_insert_with(Instant::now);
                if waiting < SETTLE_EVENTS && since.elapsed() < SETTLE_LINGER && self.ending.is_none() {
                    return;
                }
                let Some(settling) = self.window.take_settling() else {
                    return;
                };
                settling
            }
        };
        self.unsettled_since = None;
        self.ledger_busy = true;
        let (store, held) = (self.context.store.clone(), self.held.clone());
        self.spawn(Job::Settle, async move {
            let result = store.settle(&held, &settling.settlement).await;
            Done::Settled { settling, result }
        });
    }

    fn can_take_due(&self) -> bool {
        let (events, bytes) = self.window.load();
        let options = &self.context.options;
        !self.ledger_busy && events < options.window_events_max && bytes < options.window_bytes_max
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        if self.due_at > now || !self.can_take_due() {
            return;
        }
        self.ledger_busy = true;
        if self.due_after.is_none() {
            self.due_round = now;
        }
        let room_bytes = self.context.options.window_bytes_max - self.window.load().1;
        let (store, held, after, limit) = (
            self.context.store.clone(),
            self.held.clone(),
            self.due_after,
            self.limit(room_bytes),
        );
        let checks = self.context.options.checks.clone();
        self.spawn(Job::Due, async move {
            let due = async {
                let found = store.due(&held, after, limit).await?;
                let events = found.events.iter().map(|due| &due.event);
                let objections = examine::again(checks.as_ref(), events).await?;
                Ok(Examined { found, objections })
            };
            Done::Due(due.await)
        });
    }

    fn start_sweep(&mut self) {
        // What was left to the store is no news, and what is claimed by looking is none either.
        let claims = self.context.store.capabilities().claims;
        if !claims && self.window.is_whole() && self.sweep.start() {
            let mut lanes = self.held.to_vec();
            let low_mark = self.window.low_mark();
            lanes
                .iter_mut()
                .for_each(|lane| lane.low_mark = lane.low_mark.max(low_mark));
            let (decided, known) = self.window.decided();
            let (store, limit) = (
                self.context.store.clone(),
                self.limit(self.context.options.window_bytes_max / 4),
            );
            let checks = self.context.options.checks.clone();
            let time_max = self.context.options.stall_after / 2;
            self.spawn(Job::Sweep, async move {
                let swept = async {
                    let found = sweep::missed(store, &lanes, limit, decided, known).await?;
                    let objections = examine::again(checks.as_ref(), found.iter()).await?;
                    Ok(Examined { found, objections })
                };
                Done::Swept(tokio::time::timeout(time_max, swept).await.ok())
            });
        }
    }

    /// Tells the store what keeps this relay from delivering, when that has changed.
    fn start_report(&mut self) {
        if !self.report.start() {
            return;
        }
        let troubles = self.context.progress.troubles(&self.context.options.name);
        if troubles == *self.reported {
            self.report.done(self.report.every);
        } else {
            let (store, relay) = (self.context.store.clone(), self.tenancy.relay());
            self.spawn(Job::Report, async move {
                let result = store.report(relay, &troubles).await;
                Done::Reported { troubles, result }
            });
        }
    }

    /// When something can start that can't now. Only what `start_what_can_start` would then really start counts: a time
    /// that has passed and starts nothing would make the loop spin.
    pub(super) fn next_time(&self) -> Instant {
        let now = Instant::now();
        let far = now + Duration::from_secs(1);
        let mut times = vec![far, self.watch.next_look(now)];
        if !self.tenancy.is_beating() {
            times.push(self.beat.at);
        }
        if !self.ledger_busy {
            match &self.postponed {
                Some((_, at)) => times.push(*at),
                None => times.extend(self.unsettled_since.map(|since| since + SETTLE_LINGER)),
            }
        }
        if self.ending.is_none() {
            if self.can_take_due() {
                times.push(self.due_at);
            }
            times.extend(self.next_checks());
            times.extend(self.next_trials(now));
        }
        times.into_iter().min().unwrap_or(far)
    }

    fn next_checks(&self) -> impl Iterator<Item = Instant> {
        let desks = self.desks.iter().zip(&self.in_flight);
        desks
            .filter(|(_, flight)| !flight.check)
            .filter_map(|(desk, _)| desk.health.next_check())
    }

    /// A trial that is due and has no room yet is started by the answer it waits for.
    fn next_trials(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let ready = self
            .destinations
            .paused()
            .filter(|(number, _)| self.window.has_ready(*number));
        ready
            .filter_map(|(_, paused)| paused.health.next_trial())
            .filter(move |at| *at > now)
    }
}
