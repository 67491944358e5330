//! The pipeline of a relay: discover, examine, publish, settle, with bounded windows.
//!
//! Read it in the order in which an event passes:
//!
//! 1. `life`: the relay waits for the store and leases lanes (`lanes`). A `tenure` is the work on one set of lanes.
//! 2. `discovery` reads committed events, and `sweep` looks for events that it missed.
//! 3. `examine` checks them against schemas and rules.
//! 4. `tenure/admit` finds the route of each event and puts it into the `window`. The window decides which event may be
//!    sent now. It keeps the order of each key.
//! 5. `tenure/publish` starts the batches. `sink_slot` gives them to a sink and applies the verdicts on its answers.
//!    `health` and `destinations` record what is paused.
//! 6. `tenure/settle` writes the results to the store. Failing events wait in the side table (`tenure/due`).
//!
//! `watch` detects that nothing makes progress any more; `progress` counts.
//!
//! Four types say what became of an event, each at its own stage:
//!
//! | type | says | made by |
//! | --- | --- | --- |
//! | [`Outcome`](crate::sink::Outcome) | what the sink answered | the sink |
//! | [`Verdict`](crate::verdict::Verdict) | what an error means: sink down, destination down, retry, reject, stop | `verdict.rs` |
//! | `Resolution` | what the window does with the event: delivered, retry, dead, returned | `sink_slot.rs` |
//! | [`Settlement`](crate::Settlement) | what the store writes for a batch of events | the window |

mod destinations;
mod discovery;
mod examine;
mod health;
mod lanes;
mod life;
pub mod progress;
mod sink_slot;
mod sweep;
mod tally;
mod tenure;
mod watch;
mod window;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

pub use self::lanes::fair_share;
pub use self::progress::{Progress, SinkState};
use crate::{
    check::Checks,
    retry::RetryPolicy,
    route::Routes,
    sink::Sink,
    store::{RelayId, Store, StoreError},
    trace::Traces,
};

/// How an engine works. Everything has a default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Shown in `status`. Need not be unique.
    pub name: String,
    /// Events in one batch for a sink.
    pub batch_events_max: usize,
    /// Batches in flight at once.
    pub publishers_max: usize,
    /// Events that are read and not yet settled, in total.
    pub window_events_max: usize,
    /// The same, in bytes.
    pub window_bytes_max: usize,
    /// An event with a larger stored payload becomes a dead letter.
    pub payload_bytes_max: usize,
    /// The longest wait between two reads of an idle store.
    pub poll_interval_max: Duration,
    /// How long a lane stays leased without a heartbeat. After that, other relays take over the lanes of a crashed
    /// relay.
    pub lease: Duration,
    /// How often to look for events that discovery missed. There should be none.
    pub sweep_interval: Duration,
    pub retry: RetryPolicy,
    /// How long a destination (a stream, a topic, a partition) may accept nothing before its events die. `None`: no
    /// limit.
    pub destination_outage_max: Option<Duration>,
    /// If nothing makes progress for this long although there is work, the relay starts over. If that does not help, it
    /// ends with an error. Must be longer than any timeout of sinks and stores.
    pub stall_after: Duration,
    /// The checks that an event must pass before it is published. `None`: no checks, and no cost.
    pub checks: Option<Arc<Checks>>,
    /// Traces of sampled events. `None`: no traces, and no cost.
    pub traces: Option<Arc<Traces>>,
    /// The time of day. A simulation passes its own clock.
    pub clock: fn() -> Timestamp,
    /// The seed for jitter: the same seed gives the same waits.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "relay".into(),
            batch_events_max: 200,
            publishers_max: 5,
            window_events_max: 4_000,
            window_bytes_max: 32 * 1024 * 1024,
            payload_bytes_max: 1024 * 1024,
            poll_interval_max: Duration::from_millis(200),
            lease: Duration::from_secs(5),
            sweep_interval: Duration::from_secs(60),
            retry: RetryPolicy::default(),
            destination_outage_max: None,
            stall_after: Duration::from_secs(60),
            checks: None,
            traces: None,
            clock: Timestamp::now,
            seed: rand::random(),
        }
    }
}

impl Options {
    /// Events in one page: enough to keep all publishers busy.
    fn page_events_max(&self) -> usize {
        (self.batch_events_max * self.publishers_max).clamp(1, self.window_events_max)
    }
}

/// An engine that has not started yet. [`crate::Relay`] contains one.
pub struct Engine {
    pub store: Arc<dyn Store>,
    /// By the names that the routes use.
    pub sinks: BTreeMap<Arc<str>, Arc<dyn Sink>>,
    pub routes: Routes,
    pub options: Options,
}

/// A running engine. Dropping the handle asks the engine to stop and does not wait for it.
pub struct EngineHandle {
    pub id: RelayId,
    pub progress: Arc<Progress>,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), RelayError>>>,
}

/// Why a relay ended by itself. An outage does not end it: it waits.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("the database can't be used: {0}")]
    Store(#[source] StoreError),
    #[error("the relay makes no progress, and starting over did not help: {waiting_for}")]
    Stalled { waiting_for: String },
    #[error("sink `{sink}` can't be used: {error}")]
    Sink {
        sink: String,
        error: crate::sink::SinkError,
    },
}

impl Engine {
    /// Starts the engine on the current tokio runtime.
    pub fn start(self) -> EngineHandle {
        let stop = CancellationToken::new();
        let progress = Arc::new(Progress::new(
            self.options.checks.clone(),
            self.options.traces.clone(),
            self.sinks.keys(),
            self.options.clock,
        ));
        let id = RelayId::now_v7();
        let indexes = self
            .sinks
            .keys()
            .enumerate()
            .map(|(index, name)| (name.clone(), index))
            .collect();
        let context = Context {
            store: self.store,
            routes: self.routes,
            indexes,
            options: self.options,
            progress: progress.clone(),
            stop: stop.clone(),
        };
        let task = tokio::spawn(life::live(context, id, self.sinks.into_iter().collect()));
        EngineHandle {
            id,
            progress,
            stop,
            task: Some(task),
        }
    }
}

/// What every part of a relay uses.
struct Context {
    store: Arc<dyn Store>,
    routes: Routes,
    /// The index of each sink among the slots.
    indexes: HashMap<Arc<str>, usize>,
    options: Options,
    progress: Arc<Progress>,
    stop: CancellationToken,
}

impl Context {
    /// Logs it once, not at every attempt.
    fn store_is_down(&self, error: &StoreError) {
        if self.progress.store_is_down(error.chain()) {
            tracing::warn!(why = error.chain(), "the database is away; retrying");
        }
    }

    fn store_is_up(&self) {
        if let Some(away) = self.progress.store_is_up() {
            let (outage_seconds, waiting) = (away.as_secs(), self.progress.waiting());
            tracing::info!(outage_seconds, waiting, "the database is back");
        }
    }
}

impl EngineHandle {
    /// Finishes what is in flight, releases the lanes and ends.
    pub async fn stop(self) -> Result<(), RelayError> {
        self.stop.cancel();
        self.finished().await
    }

    /// Ends the engine at once, like a crash: it settles nothing and releases nothing.
    pub fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    /// Whether the engine has ended, by itself or because it was stopped.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// A token that other code, for example a signal handler, can use to stop the relay.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the relay has ended.
    pub async fn finished(mut self) -> Result<(), RelayError> {
        let Some(task) = &mut self.task else {
            return Ok(());
        };
        let ended = task.await;
        self.task = None;
        joined(ended)
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        if self.task.is_some() {
            self.stop.cancel();
        }
    }
}

/// The result of a task that ended. An aborted task counts as success; a panic is raised again.
pub(crate) fn joined(ended: Result<Result<(), RelayError>, JoinError>) -> Result<(), RelayError> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
