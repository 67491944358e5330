//! A complete relay, for the binary or inside an application: the engine and its background tasks.
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

mod background;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    audit,
    connect::{self, DatabaseOptions, OpenStore, SinkOptions},
    engine::{self, Engine, Progress, RelayError},
    metrics::{Exporter, sampler},
    notice::{self, Channel, Notifier},
    pressure::{Class, Keeper},
    reprocess::{Reprocessor, Schedule},
    route::Routes,
    scale::ScaleLimits,
    sink::{Sink, SinkError},
    store::{RelayId, StoreError},
};

/// How long a stopping relay waits for notices that are being sent. Another relay sends the rest.
const LAST_NOTICES: Duration = Duration::from_secs(3);
/// The name of the only sink of [`Relay::open`].
const ONLY_SINK: &str = "events";

/// How a relay works. Everything has a default.
#[derive(Clone)]
pub struct Options {
    /// How events are delivered, and which checks they must pass.
    pub engine: engine::Options,
    /// How often a sample of delivered events is looked up at their sinks. `None`: never.
    pub audit_every: Option<Duration>,
    /// Older dead letters are deleted. `None`: all are kept.
    pub letters_kept: Option<Duration>,
    /// Older entries of the event log are deleted. `None`: all are kept.
    pub log_kept: Option<Duration>,
    /// Schedules for sending dead letters again.
    pub reprocess: Vec<Schedule>,
    /// Limits on pending events. `None`: this relay keeps no figures, and does not change those of other relays.
    pub backpressure: Option<Vec<Class>>,
    /// How people are notified of dead letters and troubles.
    pub notices: notice::Options,
    /// The channels for notices. Empty: nobody is notified.
    pub channels: Vec<Arc<dyn Channel>>,
    /// How often the checks look for changed schemas.
    pub schemas_reload: Duration,
    /// The outbox's table, for notices.
    pub outbox: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: engine::Options::default(),
            audit_every: Some(Duration::from_secs(60)),
            letters_kept: Some(Duration::from_secs(30 * 86_400)),
            log_kept: Some(Duration::from_secs(30 * 86_400)),
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
    /// By the names that the routes use.
    pub sinks: BTreeMap<Arc<str>, Arc<dyn Sink>>,
    pub routes: Routes,
    pub options: Options,
}

/// Why a relay can't be created from two addresses.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the database: {0}")]
    Store(#[source] StoreError),
    #[error("the sink: {0}")]
    Sink(#[source] SinkError),
}

/// A running relay. Dropping the handle asks the relay to stop and does not wait for it.
pub struct Handle {
    pub id: RelayId,
    pub progress: Arc<Progress>,
    stop: CancellationToken,
    running: Option<JoinHandle<Result<(), RelayError>>>,
}

impl Relay {
    /// From one database to one sink, with default options. Does not connect yet.
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

    /// Starts the relay on the current tokio runtime. The outbox must have been migrated. If the database or a sink is
    /// away, the relay waits for it.
    pub fn start(self) -> Handle {
        let options = self.options;
        let audited = self.sinks.clone();
        let engine = Engine {
            store: self.store.store.clone(),
            sinks: self.sinks,
            routes: self.routes,
            options: options.engine.clone(),
        }
        .start();
        let (id, progress, stop) = (engine.id, engine.progress.clone(), engine.stopper());
        let background = Background::default();
        if let Some(every) = options.audit_every {
            background.until_stopped(audit::keep_auditing(audited, every, progress.clone()));
        }
        background.start(&self.store, options, progress.clone());
        let running = tokio::spawn(async move {
            // Also stops the background tasks if the engine panics.
            let _stopped = background.stop.clone().drop_guard();
            let ended = engine.finished().await;
            background.end().await;
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
    /// Finishes what is in flight, releases the lanes and ends.
    pub async fn stop(self) -> Result<(), RelayError> {
        self.stop.cancel();
        self.finished().await
    }

    /// The metrics of this relay. Every name begins with `prefix`; see [`metric_prefix`](crate::metrics::metric_prefix).
    pub fn metrics(&self, prefix: &str, scale: ScaleLimits) -> Exporter {
        Exporter::new(prefix, self.progress.clone(), scale)
    }

    /// A token that other code, for example a signal handler, can use to stop the relay.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the relay has ended, by itself or because it was asked to.
    pub async fn finished(mut self) -> Result<(), RelayError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        // Clear it only now. If this future is dropped, the handle is dropped with it and asks the relay to stop.
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

/// The background tasks. No event waits for them.
#[derive(Default)]
struct Background {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Background {
    fn start(&self, store: &OpenStore, options: Options, progress: Arc<Progress>) {
        let (relay, letters) = (options.engine.name, store.dead_letters.clone());
        self.until_stopped(sampler::keep_sampling(store.admin.clone(), progress.clone()));
        if let Some(age) = options.letters_kept {
            self.until_stopped(background::drop_old_letters(letters.clone(), age));
        }
        if let (Some(age), Some(log)) = (options.log_kept, store.event_log.clone()) {
            self.until_stopped(background::drop_old_entries(log, age));
        }
        if let Some(traces) = options.engine.traces {
            let stop = self.stop.clone();
            self.tasks.spawn(async move { traces.export(&stop).await });
        }
        if let Some(checks) = options.engine.checks {
            let every = options.schemas_reload;
            self.until_stopped(async move { checks.keep_fresh(every).await });
        }
        if !options.reprocess.is_empty() {
            let reprocessor = Reprocessor {
                dead_letters: letters.clone(),
                schedules: store.schedules(),
                list: options.reprocess,
                relay: relay.clone(),
            };
            self.tasks.spawn(reprocessor.keep(self.stop.clone()));
        }
        match (options.backpressure, store.gauge.clone()) {
            (Some(classes), Some(gauge)) => {
                let keeper = Keeper { gauge, classes };
                self.tasks.spawn(keeper.keep(self.stop.clone()));
            }
            (Some(classes), None) if !classes.is_empty() => tracing::warn!(
                database = store.kind,
                "this database can't limit producers: the classes of backpressure have no effect"
            ),
            (Some(_), None) => {}
            (None, _) => self.until_stopped(background::warn_of_classes(store.admin.clone())),
        }
        if !options.channels.is_empty() {
            let notifier = Notifier {
                dead_letters: letters,
                notices: store.notices(),
                store: store.store.clone(),
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

    /// Lets running work finish, but waits no longer than [`LAST_NOTICES`].
    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(LAST_NOTICES, self.tasks.wait()).await;
    }
}
