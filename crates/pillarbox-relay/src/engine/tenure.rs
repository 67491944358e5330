//! The work on one set of lanes, from their low marks until the set changes. Discovery, publishing and settling run
//! concurrently.
//!
//! When the set changes, or the store has failed, the tenure ends in an orderly way. It sends nothing new. It waits for
//! what is in flight and settles it. It drops the other events from memory; they are in the store. A new tenure starts
//! from the low marks. Joining, leaving, handing over and recovering all use this one path.
//!
//! Whatever waits for a job of this tenure is part of the tenure and ends with it. State that outlives the tenure
//! (lanes, the health of sinks and destinations) never waits for a job of a tenure.

mod admit;
mod due;
mod publish;
mod schedule;
mod settle;
mod timer;
mod upkeep;

use std::{collections::HashSet, sync::Arc, time::Duration};

use rand::rngs::StdRng;
use tokio::{
    task::{Id, JoinSet},
    time::Instant,
};

use self::{settle::STORE_RETRY, timer::Timer};
use super::{
    Context, RelayError,
    destinations::{DestinationId, Destinations},
    discovery::Discovery,
    examine::{Examined, Examiner},
    lanes::LaneLeases,
    sink_slot::SinkSlot,
    watch::{Job, Stall, Watch},
    window::{Entry, Settling, Window},
};
use crate::{
    event::{Lane, Seq, StoredEvent},
    sink::{Outcome, SinkError},
    store::{Due, DuePlace, HeldLane, Settled, StoreError, StoreErrorKind, Trouble},
    trace::Sending,
};

/// How long a stopping relay waits for its last settlement. Giving up causes duplicates, but no loss.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Why a tenure ended.
pub(super) enum End {
    /// The relay must stop.
    Stop,
    /// The set of lanes changes. Release `surplus` lanes first.
    Regroup {
        surplus: usize,
    },
    /// The store failed, or reported that lanes were lost.
    Store(StoreError),
    /// Nothing makes progress any more.
    Stalled(Stall),
    Fatal(RelayError),
}

/// The result of a background job.
enum Done {
    Published {
        slot: usize,
        batch: Vec<Entry>,
        outcomes: Vec<Outcome>,
        /// For the traces of events that failed.
        sending: Option<Sending>,
        trial: bool,
    },
    Checked {
        slot: usize,
        result: Result<(), SinkError>,
    },
    Settled {
        settling: Settling,
        result: Result<Settled, StoreError>,
    },
    Due(Result<Examined<Due>, StoreError>),
    Swept(Option<Result<Examined<Vec<StoredEvent>>, StoreError>>),
    Reported {
        troubles: Vec<Trouble>,
        result: Result<(), StoreError>,
    },
}

/// The jobs that are running for one sink.
#[derive(Default, Clone, Copy)]
struct InFlight {
    batches: usize,
    trial: bool,
    check: bool,
}

impl InFlight {
    fn publishing(self) -> usize {
        self.batches + usize::from(self.trial)
    }
}

/// State that outlives a tenure. Each tenure borrows it.
pub(super) struct Outliving {
    pub(super) slots: Vec<SinkSlot>,
    pub(super) destinations: Destinations,
    pub(super) rng: StdRng,
    /// The troubles of this relay that were last written to the store, and when.
    pub(super) reported: (Vec<Trouble>, Instant),
}

pub(super) struct Tenure<'a> {
    context: &'a Context,
    leases: &'a mut LaneLeases,
    slots: &'a mut [SinkSlot],
    destinations: &'a mut Destinations,
    rng: &'a mut StdRng,
    reported: &'a mut (Vec<Trouble>, Instant),
    /// The lanes as they were at the start. Settlements are fenced by their epochs.
    lanes: Arc<[HeldLane]>,
    window: Window,
    discovery: Discovery,
    /// Every event up to this seq that existed at the start has been read. Events of the side table above it must not
    /// be sent.
    reached: Seq,
    jobs: JoinSet<Done>,
    watch: Watch<Id>,
    ending: Option<(End, Instant)>,
    /// One for each sink.
    in_flight: Vec<InFlight>,
    /// Counts batches, so that destinations take turns.
    turn: usize,
    /// Paused destinations with a running trial.
    trying: HashSet<DestinationId>,
    beat: Timer,
    sweep: Timer,
    report: Timer,
    /// Settling and reading due events take turns. So an answer about the side table is never older than the last write
    /// to it.
    side_table_busy: bool,
    due_at: Instant,
    /// Where the next read of due events continues. `None`: at the first one.
    due_after: Option<DuePlace>,
    /// When this round of reads of the due events began.
    due_round: Instant,
    unsettled_since: Option<Instant>,
    /// A settlement that the store did not accept, and when to try it again.
    postponed: Option<(Settling, Instant)>,
    retry_in: Duration,
}

impl<'a> Tenure<'a> {
    pub(super) fn new(
        context: &'a Context,
        leases: &'a mut LaneLeases,
        outliving: &'a mut Outliving,
        blocked: Vec<(Lane, u64)>,
    ) -> Self {
        let Outliving {
            slots,
            destinations,
            rng,
            reported,
        } = outliving;
        let lanes: Arc<[HeldLane]> = leases.lanes.clone().into();
        let ordered = slots
            .iter()
            .map(|slot| slot.sink.capabilities().ordered)
            .collect();
        let low_mark = lanes.iter().map(|lane| lane.low_mark).min().unwrap_or(0);
        let discovery = Discovery::start(
            context.store.clone(),
            &lanes,
            context.options.poll_interval_max,
            Examiner::new(context.options.checks.clone()),
        );
        let now = Instant::now();
        Self {
            beat: Timer::new(leases.heartbeat_interval()),
            context,
            leases,
            in_flight: vec![InFlight::default(); slots.len()],
            slots,
            destinations,
            rng,
            reported,
            lanes,
            window: Window::new(ordered, blocked, low_mark),
            discovery,
            reached: Seq::MIN,
            jobs: JoinSet::new(),
            watch: Watch::new(context.options.stall_after, now),
            ending: None,
            turn: 0,
            trying: HashSet::new(),
            sweep: Timer::new(context.options.sweep_interval),
            report: Timer::new(REPORT_INTERVAL),
            side_table_busy: false,
            due_at: now,
            due_after: None,
            due_round: now,
            unsettled_since: None,
            postponed: None,
            retry_in: STORE_RETRY,
        }
    }

    pub(super) async fn run(mut self) -> End {
        loop {
            self.context.progress.tick(self.context.store.statements());
            self.start_what_can_start();
            self.look_for_a_stall();
            if let Some(end) = self.ended() {
                self.leases.mark(self.window.low_mark());
                return end;
            }
            let until = self.next_time();
            tokio::select! {
                biased;
                () = self.context.stop.cancelled(), if self.ending.is_none() => self.end(End::Stop),
                Some(done) = self.jobs.join_next_with_id() => match done {
                    Ok((id, done)) => {
                        self.watch.ended(&id, Instant::now());
                        self.apply_result(done);
                    }
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                },
                beat = self.leases.beaten(), if self.leases.is_beating() => self.apply_beat(beat),
                page = self.discovery.next(), if self.ending.is_none() => match page {
                    Ok(page) => {
                        self.watch.done(Job::Read, Instant::now());
                        self.admit_page(page);
                    }
                    Err(error) => self.end(End::Store(error)),
                },
                () = tokio::time::sleep_until(until) => {}
            }
            let (events, _) = self.window.load();
            self.context.progress.set_in_flight(events);
        }
    }

    fn spawn(&mut self, job: Job, work: impl Future<Output = Done> + Send + 'static) {
        let id = self.jobs.spawn(work).id();
        self.watch.started(id, job, Instant::now());
    }

    fn apply_result(&mut self, done: Done) {
        match done {
            Done::Published {
                slot,
                batch,
                outcomes,
                sending,
                trial,
            } => self.apply_outcomes(slot, batch, outcomes, sending, trial),
            Done::Checked { slot, result } => self.apply_check(slot, result),
            Done::Settled { settling, result } => self.apply_settled(settling, result),
            Done::Due(result) => self.apply_due(result),
            Done::Swept(result) => self.apply_swept(result),
            Done::Reported { troubles, result } => self.apply_reported(troubles, result),
        }
    }

    /// Ends the tenure. Nothing new is sent from now on.
    fn end(&mut self, end: End) {
        if self.ending.is_none() {
            self.ending = Some((end, Instant::now()));
        }
    }

    fn look_for_a_stall(&mut self) {
        let reading = self.discovery.reading_since().map(|since| (Job::Read, since));
        let beating = self.leases.beating_since().map(|since| (Job::Heartbeat, since));
        let work = self.window.load().0 > 0;
        let now = Instant::now();
        let other = || reading.into_iter().chain(beating);
        if let Some(stall) = self.watch.stalled(now, other(), work) {
            // The tenure ends at once, because the job that it waits for may never end.
            self.ending = Some((End::Stalled(stall), now));
        } else if self.watch.is_well(now, other()) {
            self.context.progress.stalled_is(None);
        }
    }

    fn ended(&mut self) -> Option<End> {
        let (end, since) = self.ending.as_ref()?;
        let quiet = self.in_flight.iter().all(|sink| sink.publishing() == 0)
            && !self.side_table_busy
            && self.postponed.is_none()
            && self.window.unsettled() == 0;
        let at_once = matches!(end, End::Fatal(_) | End::Stalled(_))
            || matches!(end, End::Store(error) if error.kind == StoreErrorKind::Fenced)
            || matches!(end, End::Stop) && since.elapsed() > STOP_PATIENCE;
        if quiet || at_once {
            self.ending.take().map(|(end, _)| end)
        } else {
            None
        }
    }
}

/// How often the relay's troubles may be written to the store.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
