//! The work on one set of lanes, from their low marks until the set changes: discover, publish, settle, side by side.
//!
//! When the set changes, or the store has failed, the tenure ends quietly: nothing new goes out, what is in flight is
//! waited for and settled, what has not gone out is dropped from memory (it is in the store), and a new tenure starts
//! from the low marks. That one way covers joining, leaving, handing over and recovering.

mod admit;
mod results;
mod start;
mod timer;

use std::{sync::Arc, time::Duration};

use rand::rngs::StdRng;
use tokio::{task::JoinSet, time::Instant};

use self::timer::Timer;
use super::{
    Context, RelayError,
    discover::Discovery,
    examine::{Examined, Examiner},
    lanes::{Beat, Tenancy},
    publish::Desk,
    window::{Entry, Settling, Window},
};
use crate::{
    event::{Lane, StoredEvent},
    sink::{Outcome, SinkError},
    store::{Due, HeldLane, Settled, StoreError, StoreErrorKind},
};

/// Results wait this long for company before they are written down: fewer, larger statements. No event waits for it.
const SETTLE_LINGER: Duration = Duration::from_millis(5);
/// Unless there are this many.
const SETTLE_EVENTS: usize = 1_000;
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
    Due(Result<Examined<Due>, StoreError>),
    Beat(Result<Beat, StoreError>),
    Swept(Result<Examined<Vec<StoredEvent>>, StoreError>),
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
        let discovery = Discovery::start(
            context.store.clone(),
            &held,
            context.options.poll_interval_max,
            Examiner::new(context.options.checks.clone()),
        );
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
}
