//! A whole relay, as the binary runs it and as an application can: the engine, and what works beside it.
//!
//! ```no_run
//! # async fn embedded() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox_relay::Relay;
//!
//! let relay = Relay::open("postgres://app@127.0.0.1/shop", "nats://127.0.0.1:4222")?;
//! relay.store.admin.migrate().await?;
//! let handle = relay.start();
//! // … the application works …
//! handle.stop().await?;
//! # Ok(()) }
//! ```

mod beside;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    connect::{self, DatabaseOptions, OpenStore, SinkOptions},
    engine::{self, Engine, Progress, RelayError},
    notice::{self, Channel, Notifier},
    pressure::{Class, Keeper},
    reprocess::{Reprocessor, Schedule},
    route::Routes,
    sink::{Sink, SinkError},
    store::{RelayId, StoreError},
};

/// How long a relay that stops waits for notices that are being sent. Another relay sends the rest.
const LAST_NOTICES: Duration = Duration::from_secs(3);
/// The name of the only sink of [`Relay::open`].
const ONLY_SINK: &str = "events";

/// How a relay works. Everything has a default.
#[derive(Clone)]
pub struct Options {
    /// How events are moved, and what they must fulfil.
    pub engine: engine::Options,
    /// Dead letters that are older are dropped. `None`: none is.
    pub letters_kept: Option<Duration>,
    /// Dead letters to send again.
    pub reprocess: Vec<Schedule>,
    /// Limits on what may wait. `None`: this relay keeps no figures, and leaves those of other relays alone.
    pub backpressure: Option<Vec<Class>>,
    /// How people are told of dead letters and troubles.
    pub notices: notice::Options,
    /// The ways to tell them. Empty: nobody is told.
    pub channels: Vec<Arc<dyn Channel>>,
    /// How often the checks look for schemas that have changed.
    pub schemas_reload: Duration,
    /// The outbox's table, as notices name it.
    pub outbox: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: engine::Options::default(),
            letters_kept: Some(Duration::from_secs(30 * 86_400)),
            reprocess: Vec::new(),
            backpressure: None,
            notices: notice::Options::default(),
            channels: Vec::new(),
            schemas_reload: Duration::from_secs(10),
            outbox: "outbox_events".into(),
        }
    }
}

/// A relay that has not started yet.
pub struct Relay {
    pub store: OpenStore,
    /// By the names the routes use.
    pub sinks: BTreeMap<Arc<str>, Arc<dyn Sink>>,
    pub routes: Routes,
    pub options: Options,
}

/// Why a relay can't be made of two addresses.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the database: {0}")]
    Store(#[source] StoreError),
    #[error("the sink: {0}")]
    Sink(#[source] SinkError),
}

/// A relay at work. Dropping it asks the relay to stop, and does not wait for that.
pub struct Handle {
    pub id: RelayId,
    pub progress: Arc<Progress>,
    stop: CancellationToken,
    running: Option<JoinHandle<Result<(), RelayError>>>,
}

impl Relay {
    /// From one database to one sink, with the defaults of everything. Connects to nothing yet.
    pub fn open(database: &str, sink: &str) -> Result<Self, OpenError> {
        let store = connect::store(&DatabaseOptions::new(database)).map_err(OpenError::Store)?;
        let sink = connect::sink(&SinkOptions::new(sink)).map_err(OpenError::Sink)?;
        Ok(Self {
            store,
            sinks: [(ONLY_SINK.into(), sink.sink)].into(),
            routes: Routes::to_one(ONLY_SINK),
            options: Options::default(),
        })
    }

    /// Starts it on the current tokio runtime. The outbox must have been migrated; a database or a sink that is away is
    /// waited for.
    pub fn start(self) -> Handle {
        let options = self.options;
        let engine = Engine {
            store: self.store.store.clone(),
            sinks: self.sinks,
            routes: self.routes,
            options: options.engine.clone(),
        }
        .start();
        let (id, progress, stop) = (engine.id, engine.progress.clone(), engine.stopper());
        let beside = Beside::default();
        beside.start(&self.store, options, progress.clone());
        let running = tokio::spawn(async move {
            // Also when the engine panics.
            let _stopped = beside.stop.clone().drop_guard();
            let ended = engine.finished().await;
            beside.end().await;
            ended
        });
        Handle {
            id,
            progress,
            stop,
            running: Some(running),
        }
    }
}

impl Handle {
    /// Finishes what is in flight, hands the lanes back and ends.
    pub async fn stop(self) -> Result<(), RelayError> {
        self.stop.cancel();
        self.finished().await
    }

    /// Asks the relay to stop, from elsewhere: a signal, another task.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the relay has ended, by itself or because it was asked to.
    pub async fn finished(mut self) -> Result<(), RelayError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        // Taken only now: who drops this future drops the handle with it, and so asks the relay to stop.
        let ended = running.await;
        self.running = None;
        engine::joined(ended)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.stop.cancel();
        }
    }
}

/// What works beside the engine. No event waits for it.
#[derive(Default)]
struct Beside {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Beside {
    fn start(&self, store: &OpenStore, options: Options, progress: Arc<Progress>) {
        let (relay, letters) = (options.engine.name, store.dead_letters.clone());
        if let Some(age) = options.letters_kept {
            self.until_stopped(beside::drop_old_letters(letters.clone(), age));
        }
        if let Some(checks) = options.engine.checks {
            let every = options.schemas_reload;
            self.until_stopped(async move { checks.keep_fresh(every).await });
        }
        if !options.reprocess.is_empty() {
            let reprocessor = Reprocessor {
                dead_letters: letters.clone(),
                schedules: store.schedules.clone(),
                list: options.reprocess,
                relay: relay.clone(),
            };
            self.tasks.spawn(reprocessor.keep(self.stop.clone()));
        }
        match options.backpressure {
            Some(classes) => {
                let gauge = store.gauge.clone();
                self.tasks
                    .spawn(Keeper { gauge, classes }.keep(self.stop.clone()));
            }
            None => self.until_stopped(beside::warn_of_classes(store.admin.clone())),
        }
        if !options.channels.is_empty() {
            let notifier = Notifier {
                dead_letters: letters,
                notices: store.notices.clone(),
                channels: options.channels,
                options: options.notices,
                progress,
                relay,
                outbox: options.outbox,
            };
            notifier.start(&self.tasks, &self.stop);
        }
    }

    fn until_stopped(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Lets what is being done end, but waits no longer than [`LAST_NOTICES`].
    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(LAST_NOTICES, self.tasks.wait()).await;
    }
}
