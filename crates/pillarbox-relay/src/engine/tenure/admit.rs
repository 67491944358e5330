//! Admits the pages of discovery, and what the sweep found, to the window, as far as there is room.

use jiff::Timestamp;
use rand::RngExt;
use std::time::Duration;
use tokio::time::Instant;

use super::{
    super::{
        examine::{self, Examined, Objection},
        sweep,
        watch::Job,
        window::{Entry, Target},
    },
    Done, Tenure,
};
use crate::{
    event::{Lane, Seq, StoredEvent, Unreadable},
    log,
    route::AfterDeath,
    settlement::{Dead, DeadReason, FailedTry},
    store::{Page, PageLimit, StoreError},
};

impl Tenure<'_> {
    /// Asks for the next page if there is room for a large one. Otherwise the events stay in the table.
    pub(super) fn ask_for_more(&mut self) {
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

    /// Whether a quarter of the window is free.
    pub(super) fn has_room(&self) -> bool {
        let options = &self.context.options;
        let (events, bytes) = self.window.load();
        let room = options.window_events_max.saturating_sub(events);
        let room_bytes = options.window_bytes_max.saturating_sub(bytes);
        room * 4 >= options.window_events_max && room_bytes * 4 >= options.window_bytes_max
    }

    pub(super) fn limit(&self, bytes: usize) -> PageLimit {
        let options = &self.context.options;
        PageLimit {
            events: options.page_events_max(),
            bytes,
            payload_bytes_max: options.payload_bytes_max,
        }
    }

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
            // Due events that were skipped until now may be sent.
            self.due_at = Instant::now();
        }
        self.context
            .progress
            .read(page.events.len() + page.unreadable.len());
        // Unreadable rows come first: if one holds its key, no event behind it may be sent.
        self.admit_unreadable(page.unreadable, Some(number));
        let now = (self.context.options.clock)();
        for event in page.events {
            log::discovered(&event);
            let objection = objections.remove(&event.seq);
            self.admit(event, objection, number, now);
        }
    }

    pub(super) fn admit(
        &mut self,
        event: StoredEvent,
        objection: Option<Objection>,
        page: u64,
        now: Timestamp,
    ) {
        let Some(target) = self.target(&event) else {
            let dead = self.no_route(&event, None);
            self.window.admit_dead(dead, Some(page));
            return;
        };
        if let Some(Objection::Reject { error }) = objection {
            let dead = self.rejected(&event, &target, error);
            self.window.admit_dead(dead, Some(page));
            return;
        }
        let later = event.event.available_at.filter(|&at| at > now);
        let entry = Entry::new(event, target, Some(page));
        match (later, objection) {
            // It is checked again when it is due.
            (Some(available_at), _) => self.window.admit_delayed(entry, available_at),
            (None, Some(Objection::Wait { error, retry_in })) => {
                self.admit_unchecked(entry, false, error, retry_in)
            }
            (None, _) => self.window.admit(entry),
        }
    }

    /// Where an event goes. `None`: no route matches.
    pub(super) fn target(&mut self, event: &StoredEvent) -> Option<Target> {
        let route = self.context.routes.matching(&event.event)?;
        let sink = *self.context.indexes.get(&route.sink)?;
        let slot = &self.slots[sink];
        let name = slot.sink.destination(&event.event, route.stream.as_deref());
        Some(Target {
            sink,
            destination: self.destinations.number(sink, &slot.name, name),
            stream: route.stream,
            envelope: route.envelope,
            after_death: route.after_death,
            event_log: route.event_log || slot.sink.capabilities().delivers_to_event_log,
        })
    }

    /// Returns the keys that these rows hold, each with the seq of its row.
    pub(super) fn admit_unreadable(
        &mut self,
        rows: Vec<Unreadable>,
        page: Option<u64>,
    ) -> Vec<((Lane, String), Seq)> {
        let mut holding = Vec::new();
        for row in rows {
            tracing::warn!(
                seq = row.seq,
                problem = row.problem,
                "a stored event can't be read: it becomes a dead letter"
            );
            // Only a route that holds the key after a death needs it here. The side table knows the keys of its own rows.
            let after = row
                .topic
                .as_ref()
                .map_or(AfterDeath::Skip, |topic| self.context.routes.after_death(topic));
            let key = row.key.filter(|_| after != AfterDeath::Skip);
            let logged = row
                .topic
                .as_ref()
                .is_some_and(|topic| self.context.routes.is_logged(topic));
            let dead = Dead {
                seq: row.seq,
                lane: row.lane,
                subject: None,
                after: if key.is_some() { after } else { AfterDeath::Skip },
                key,
                attempts: 0,
                reason: DeadReason::PoisonMessage,
                failure: self.untried(row.problem),
                tried: false,
                logged,
            };
            if let (true, Some(key)) = (dead.holds_its_key(), &dead.key) {
                holding.push(((dead.lane, key.clone()), dead.seq));
            }
            self.window.admit_dead(dead, page);
        }
        holding
    }

    /// An event that can't be checked now. The attempt is not counted, because the event is not at fault.
    pub(super) fn admit_unchecked(&mut self, entry: Entry, delayed: bool, error: String, retry_in: Duration) {
        // Spread the retries of events that began to wait together.
        let retry_in = retry_in.mul_f64(self.rng.random_range(0.75..1.25));
        let failure = self.untried(error);
        self.window.admit_unchecked(entry, delayed, failure, retry_in);
    }

    pub(super) fn rejected(&self, event: &StoredEvent, target: &Target, error: String) -> Dead {
        let after = target.after_death;
        self.context.progress.recorded.validation_errors.inc();
        self.trace_death(event, DeadReason::SchemaValidationFailed, &error);
        Dead {
            seq: event.seq,
            lane: event.lane,
            subject: Some((&event.event).into()),
            key: (after != AfterDeath::Skip).then(|| event.event.key().to_owned()),
            after,
            attempts: event.attempts,
            reason: DeadReason::SchemaValidationFailed,
            failure: self.untried(error),
            tried: false,
            logged: target.event_log,
        }
    }

    pub(super) fn no_route(&self, event: &StoredEvent, key: Option<String>) -> Dead {
        let error = format!(
            "no route matches the topic `{}`: add one to `routes`, then replay the event",
            event.event.topic
        );
        self.trace_death(event, DeadReason::PermanentFailure, &error);
        Dead {
            seq: event.seq,
            lane: event.lane,
            subject: Some((&event.event).into()),
            key,
            after: AfterDeath::Skip,
            attempts: event.attempts,
            reason: DeadReason::PermanentFailure,
            failure: self.untried(error),
            tried: false,
            logged: self.context.routes.is_logged(&event.event.topic),
        }
    }

    fn trace_death(&self, event: &StoredEvent, reason: DeadReason, error: &str) {
        if let Some(traces) = &self.context.options.traces {
            traces.died_untried(event, reason, error, (self.context.options.clock)());
        }
    }

    pub(super) fn untried(&self, error: String) -> FailedTry {
        FailedTry {
            error,
            sink: None,
            relay: self.context.options.name.as_str().into(),
        }
    }

    pub(super) fn start_sweep(&mut self) {
        // No sweep while events are set aside, or when reading locks the events.
        let claims = self.context.store.claims_rows();
        if !claims && self.window.is_whole() && self.sweep.start() {
            let mut lanes = self.lanes.to_vec();
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

    /// Events that discovery should have returned. They are delivered, and reported as an error, because this should
    /// never happen.
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

    pub(super) fn apply_swept(&mut self, result: Option<Result<Examined<Vec<StoredEvent>>, StoreError>>) {
        self.sweep.done(self.context.options.sweep_interval);
        if let Some(Ok(missed)) = result {
            self.admit_missed(missed);
        }
    }
}
