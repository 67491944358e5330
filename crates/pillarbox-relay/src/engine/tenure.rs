//! The work on one set of lanes, from their low marks until the set changes: discover, publish, settle, side by side.
//!
//! When the set changes, or the store has failed, the tenure ends quietly: nothing new goes out, what is in flight is
//! waited for and settled, what has not gone out is dropped from memory (it is in the store), and a new tenure starts
//! from the low marks. That one way covers joining, leaving, handing over and recovering.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rand::rngs::StdRng;
use tokio::{task::JoinSet, time::Instant};

use super::{
    Context, RelayError,
    discover::Discovery,
    lanes::{Beat, Change, Tenancy},
    publish::{self, Desk},
    sweep,
    window::{Entry, Resolution, Settling, Window},
};
use crate::{
    event::{Lane, StoredEvent, Unreadable},
    settlement::{Dead, DeadReason},
    sink::{Outcome, SinkError},
    store::{Due, HeldLane, Page, PageLimit, Settled, StoreError, StoreErrorKind},
};

/// Results wait this long for company before they are written down: fewer, larger statements. No event waits for it.
const SETTLE_LINGER: Duration = Duration::from_millis(5);
/// Unless there are this many.
const SETTLE_EVENTS: usize = 500;
/// How often to look for due events when none is known: another process may have put some there.
const DUE_INTERVAL: Duration = Duration::from_secs(1);
/// A store that fails is tried again after this, then more and more rarely.
const STORE_RETRY: Duration = Duration::from_millis(100);
const STORE_RETRY_MAX: Duration = Duration::from_secs(2);
/// How long a relay that is to stop waits for its last settlement. Giving up costs duplicates, no loss.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Why a tenure ended.
pub(super) enum End {
    /// The relay is to stop.
    Stop,
    /// The set of lanes changes; this many are to be handed back first.
    Regroup {
        surplus: usize,
    },
    /// The store failed, or says that lanes were lost.
    Store(StoreError),
    Fatal(RelayError),
}

/// Something done in the background.
enum Done {
    Published {
        desk: usize,
        batch: Vec<Entry>,
        outcomes: Vec<Outcome>,
    },
    Checked {
        desk: usize,
        result: Result<(), SinkError>,
    },
    Settled {
        settling: Settling,
        result: Result<Settled, StoreError>,
    },
    Due(Result<Due, StoreError>),
    Beat(Result<Beat, StoreError>),
    Swept(Result<Vec<StoredEvent>, StoreError>),
}

pub(super) struct Tenure<'a> {
    context: &'a Context,
    tenancy: &'a mut Tenancy,
    desks: &'a mut [Desk],
    rng: &'a mut StdRng,
    /// The lanes as they were at the start: what is fenced.
    held: Arc<[HeldLane]>,
    window: Window,
    discovery: Discovery,
    jobs: JoinSet<Done>,
    ending: Option<(End, Instant)>,
    publishing: usize,
    beat: Timer,
    sweep: Timer,
    /// Settling and asking for due events take turns, so that an answer about the side table is never older than what
    /// was written to it.
    ledger_busy: bool,
    due_at: Instant,
    unsettled_since: Option<Instant>,
    /// A settlement that the store did not take, to be tried again.
    postponed: Option<(Settling, Instant)>,
    retry_in: Duration,
}

/// Something done now and then, one at a time.
struct Timer {
    every: Duration,
    at: Instant,
    running: bool,
}

impl Timer {
    fn new(every: Duration) -> Self {
        Self {
            every,
            at: Instant::now() + every,
            running: false,
        }
    }

    /// Whether it is time; if so it counts as begun.
    fn start(&mut self) -> bool {
        let now = !self.running && Instant::now() >= self.at;
        self.running |= now;
        now
    }

    fn done(&mut self, every: Duration) {
        self.running = false;
        self.at = Instant::now() + every;
    }
}

impl<'a> Tenure<'a> {
    pub(super) fn new(
        context: &'a Context,
        tenancy: &'a mut Tenancy,
        desks: &'a mut [Desk],
        rng: &'a mut StdRng,
        blocked: Vec<(Lane, u64)>,
    ) -> Self {
        let held: Arc<[HeldLane]> = tenancy.held.clone().into();
        let ordered = desks
            .iter()
            .map(|desk| desk.sink.capabilities().ordered)
            .collect();
        let low_mark = held.iter().map(|lane| lane.low_mark).min().unwrap_or(0);
        let discovery = Discovery::start(context.store.clone(), &held, context.options.poll_interval_max);
        let beat = Timer::new(tenancy.heartbeat_interval());
        Self {
            context,
            tenancy,
            desks,
            rng,
            held,
            window: Window::new(ordered, blocked, low_mark),
            discovery,
            jobs: JoinSet::new(),
            ending: None,
            publishing: 0,
            beat,
            sweep: Timer::new(context.options.sweep_interval),
            ledger_busy: false,
            due_at: Instant::now(),
            unsettled_since: None,
            postponed: None,
            retry_in: STORE_RETRY,
        }
    }

    pub(super) async fn run(mut self) -> End {
        loop {
            self.start_what_can_start();
            if let Some(end) = self.ended() {
                self.tenancy.mark(self.window.low_mark());
                return end;
            }
            let until = self.next_time();
            tokio::select! {
                biased;
                () = self.context.stop.cancelled(), if self.ending.is_none() => self.end(End::Stop),
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.take_in(done),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                },
                page = self.discovery.next(), if self.ending.is_none() => match page {
                    Ok(page) => self.admit_page(page),
                    Err(error) => self.end(End::Store(error)),
                },
                () = tokio::time::sleep_until(until) => {}
            }
            let (events, _) = self.window.load();
            self.context.progress.set_in_flight(events);
        }
    }

    /// Nothing new goes out from here on.
    fn end(&mut self, end: End) {
        if self.ending.is_none() {
            self.ending = Some((end, Instant::now()));
        }
    }

    fn ended(&mut self) -> Option<End> {
        let (end, since) = self.ending.as_ref()?;
        let quiet = self.publishing == 0
            && !self.ledger_busy
            && self.postponed.is_none()
            && self.window.unsettled() == 0;
        let at_once = matches!(end, End::Fatal(_))
            || matches!(end, End::Store(error) if error.kind == StoreErrorKind::Fenced)
            || matches!(end, End::Stop) && since.elapsed() > STOP_PATIENCE;
        if quiet || at_once {
            self.ending.take().map(|(end, _)| end)
        } else {
            None
        }
    }

    fn start_what_can_start(&mut self) {
        if self.beat.start() {
            self.tenancy.mark(self.window.low_mark());
            let beat = self.tenancy.beat();
            self.jobs.spawn(async move { Done::Beat(beat.await) });
        }
        if self.ending.is_none() {
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
        let (events, bytes) = self.window.load();
        let room = options.window_events_max.saturating_sub(events);
        let room_bytes = options.window_bytes_max.saturating_sub(bytes);
        if room * 4 >= options.window_events_max && room_bytes * 4 >= options.window_bytes_max {
            self.discovery.ask(PageLimit {
                events: room.min(options.page_events_max()),
                ..self.limit(room_bytes)
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
        self.jobs
            .spawn(async move { Done::Due(store.due(&held, limit).await) });
    }

    fn start_sweep(&mut self) {
        if self.sweep.start() {
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
            self.jobs
                .spawn(async move { Done::Swept(sweep::missed(store, &lanes, limit, decided, known).await) });
        }
    }

    fn take_in(&mut self, done: Done) {
        match done {
            Done::Published {
                desk,
                batch,
                outcomes,
            } => {
                self.publishing -= 1;
                let desk = &mut self.desks[desk];
                desk.in_flight -= 1;
                let (policy, progress) = (&self.context.options.retry, &self.context.progress);
                match desk.resolve(batch, outcomes, policy, self.rng, progress) {
                    Ok(resolved) => {
                        let delivered = |(_, resolution): &&(_, _)| *resolution == Resolution::Delivered;
                        progress.delivered(resolved.iter().filter(delivered).count());
                        self.window.complete(resolved);
                    }
                    Err(error) => {
                        let sink = desk.name.to_string();
                        self.end(End::Fatal(RelayError::Sink { sink, error }));
                    }
                }
            }
            Done::Checked { desk, result } => self.desks[desk].checked(result, &self.context.progress),
            Done::Settled { settling, result } => self.take_in_settled(settling, result),
            Done::Due(result) => {
                self.ledger_busy = false;
                match result {
                    Ok(due) if self.ending.is_none() => self.admit_due(due),
                    Ok(_) => {}
                    Err(error) => self.end(End::Store(error)),
                }
            }
            Done::Beat(result) => self.take_in_beat(result),
            Done::Swept(result) => {
                self.sweep.done(self.context.options.sweep_interval);
                if let Ok(missed) = result {
                    self.admit_missed(missed);
                }
            }
        }
    }

    fn take_in_settled(&mut self, settling: Settling, result: Result<Settled, StoreError>) {
        self.ledger_busy = false;
        match result {
            Ok(settled) => {
                self.retry_in = STORE_RETRY;
                self.context.store_is_up();
                self.context.progress.settled(&settling.settlement);
                self.window.settled(&settling, &settled.free);
                if !settling.settlement.is_plain() {
                    self.due_at = Instant::now();
                }
            }
            Err(error) if error.kind == StoreErrorKind::Fenced => {
                if let Some((end, _)) = &mut self.ending {
                    *end = End::Store(error);
                } else {
                    self.end(End::Store(error));
                }
            }
            Err(error) => {
                self.context.store_is_down(&error);
                self.postponed = Some((settling, Instant::now() + self.retry_in));
                self.retry_in = (self.retry_in * 2).min(STORE_RETRY_MAX);
            }
        }
    }

    fn take_in_beat(&mut self, result: Result<Beat, StoreError>) {
        let mut next = self.beat.every;
        match result {
            Ok(beat) => {
                self.context.store_is_up();
                match self.tenancy.absorb(beat) {
                    Change::Keep => {}
                    Change::Gained => self.end(End::Regroup { surplus: 0 }),
                    Change::Surplus(surplus) => self.end(End::Regroup { surplus }),
                    Change::Lost => {
                        tracing::warn!("lost lanes to another relay: starting again with what is left");
                        self.end(End::Store(StoreError::fenced()));
                    }
                }
            }
            Err(error) => {
                self.context.store_is_down(&error);
                next /= 4;
            }
        }
        self.beat.done(next);
    }

    fn admit_page(&mut self, page: Page) {
        let seqs = page
            .events
            .iter()
            .map(|event| event.seq)
            .chain(page.unreadable.iter().map(|row| row.seq));
        let number = self.window.open_page(seqs, page.decided);
        self.context
            .progress
            .read(page.events.len() + page.unreadable.len());
        let now = Timestamp::now();
        for event in page.events {
            self.admit(event, number, now);
        }
        self.admit_unreadable(page.unreadable, Some(number));
    }

    fn admit(&mut self, event: StoredEvent, page: u64, now: Timestamp) {
        let Some((sink, stream)) = self.context.destination(&event) else {
            self.window.admit_dead(no_route(&event, None), Some(page));
            return;
        };
        let later = event.event.available_at.filter(|&at| at > now);
        let entry = Entry::new(event, sink, stream, Some(page));
        match later {
            Some(available_at) => self.window.admit_delayed(entry, available_at),
            None => self.window.admit(entry),
        }
    }

    fn admit_due(&mut self, due: Due) {
        let brought = !due.events.is_empty();
        for due in due.events {
            match self.context.destination(&due.event) {
                Some((sink, stream)) => {
                    self.window
                        .admit_parked(Entry::new(due.event, sink, stream, None), due.delayed);
                }
                None => {
                    let key = due.event.event.key().to_owned();
                    self.window.admit_dead(no_route(&due.event, Some(key)), None);
                }
            }
        }
        self.admit_unreadable(due.unreadable, None);
        // What was brought is returned until it is settled, and settling asks again.
        let wait = due
            .next
            .filter(|_| !brought)
            .map_or(DUE_INTERVAL, |next| next.min(DUE_INTERVAL));
        self.due_at = Instant::now() + wait;
    }

    fn admit_unreadable(&mut self, rows: Vec<Unreadable>, page: Option<u64>) {
        for row in rows {
            tracing::warn!(
                seq = row.seq,
                problem = row.problem,
                "a stored event can't be read: dead letter"
            );
            let dead = Dead {
                seq: row.seq,
                lane: row.lane,
                key: None,
                attempts: 0,
                reason: DeadReason::PoisonMessage,
                error: row.problem,
            };
            self.window.admit_dead(dead, page);
        }
    }

    /// Events that discovery should have brought: delivered all the same, and told, as it should never happen.
    fn admit_missed(&mut self, missed: Vec<StoredEvent>) {
        let missed: Vec<StoredEvent> = missed
            .into_iter()
            .filter(|event| !self.window.may_hold(event.seq))
            .collect();
        if missed.is_empty() || self.ending.is_some() {
            return;
        }
        tracing::error!(
            count = missed.len(),
            "the sweep found events that discovery had missed: delivering them"
        );
        self.context.progress.swept(missed.len());
        let decided = self.window.decided().0;
        self.admit_page(Page {
            events: missed,
            decided,
            ..Page::default()
        });
    }

    /// When something can start that can't now. Only what `start_what_can_start` would then really start counts: a time
    /// that has passed and starts nothing would make the loop spin.
    fn next_time(&self) -> Instant {
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

fn no_route(event: &StoredEvent, key: Option<String>) -> Dead {
    Dead {
        seq: event.seq,
        lane: event.lane,
        key,
        attempts: event.attempts,
        reason: DeadReason::PermanentFailure,
        error: format!(
            "no route takes the topic `{}`: add one to `routes`, then replay the event",
            event.event.topic
        ),
    }
}
