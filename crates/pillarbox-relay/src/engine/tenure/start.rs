//! What a tenure can start now, and when it can start something else.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{examine, examine::Examined, publish, publish::Desk, sweep},
    Done, End, SETTLE_EVENTS, SETTLE_LINGER, Tenure,
};
use crate::store::PageLimit;

impl Tenure<'_> {
    pub(super) fn start_what_can_start(&mut self) {
        if self.beat.start() {
            self.tenancy.mark(self.window.low_mark());
            let beat = self.tenancy.beat();
            self.jobs.spawn(async move { Done::Beat(beat.await) });
        }
        if self.ending.is_none() {
            self.close_what_is_away();
            self.start_publishing();
            self.start_checks();
            self.ask_for_more();
            self.start_sweep();
        }
        self.start_settling();
        if self.ending.is_none() {
            self.start_due();
        }
    }

    fn start_publishing(&mut self) {
        let options = &self.context.options;
        for (index, desk) in self.desks.iter_mut().enumerate() {
            while desk.in_flight < desk.batches_max(options.publishers_max)
                && self.window.has_ready(index)
                && self.tenancy.is_valid()
            {
                let batch = self.window.take_batch(index, options.batch_events_max);
                desk.in_flight += 1;
                self.publishing += 1;
                let sink = desk.sink.clone();
                self.jobs.spawn(async move {
                    let outcomes = publish::publish(sink, &batch).await;
                    Done::Published {
                        desk: index,
                        batch,
                        outcomes,
                    }
                });
            }
        }
    }

    /// A sink that is away must not fill the window, or the others would wait with it. What it leaves to the store is
    /// read again by the tenure that begins when it is back. With one sink the table is the better buffer.
    fn close_what_is_away(&mut self) {
        let full = !self.has_room();
        let others_work = self.desks.iter().any(|desk| !desk.is_down());
        for (index, desk) in self.desks.iter().enumerate() {
            let away = desk.is_down() && desk.in_flight == 0;
            if away && full && others_work && self.window.has_ready(index) {
                tracing::info!(
                    sink = &*desk.name,
                    "leaving its events in the store until it is back: others go on"
                );
                self.window.close(index);
            }
        }
        let back = |(index, desk): (usize, &Desk)| self.window.is_closed(index) && !desk.is_down();
        if self.desks.iter().enumerate().any(back) {
            self.end(End::Regroup { surplus: 0 });
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
        for (index, desk) in self.desks.iter_mut().enumerate() {
            if desk.next_check().is_some_and(|at| at <= now) {
                let sink = desk.start_check();
                self.jobs.spawn(async move {
                    Done::Checked {
                        desk: index,
                        result: sink.check().await,
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
        self.jobs.spawn(async move {
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
        if self.due_at > Instant::now() || !self.can_take_due() {
            return;
        }
        self.ledger_busy = true;
        let room_bytes = self.context.options.window_bytes_max - self.window.load().1;
        let (store, held, limit) = (
            self.context.store.clone(),
            self.held.clone(),
            self.limit(room_bytes),
        );
        let checks = self.context.options.checks.clone();
        self.jobs.spawn(async move {
            let due = async {
                let found = store.due(&held, None, limit).await?;
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
            self.jobs.spawn(async move {
                let swept = async {
                    let found = sweep::missed(store, &lanes, limit, decided, known).await?;
                    let objections = examine::again(checks.as_ref(), found.iter()).await?;
                    Ok(Examined { found, objections })
                };
                Done::Swept(swept.await)
            });
        }
    }

    /// When something can start that can't now. Only what `start_what_can_start` would then really start counts: a time
    /// that has passed and starts nothing would make the loop spin.
    pub(super) fn next_time(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(1);
        let mut times = vec![far];
        if !self.beat.running {
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
            times.extend(self.desks.iter().filter_map(Desk::next_check));
        }
        times.into_iter().min().unwrap_or(far)
    }
}
