//! The HTTP API and the page.
//!
//! [`paths`] says what a request passes before it reaches its handler. Each handler has an OpenAPI description, which
//! also says who may use it.

pub(crate) mod access;
mod answers;
mod catalog;
mod connections;
pub(crate) mod dead;
mod event_id;
mod events;
mod health;
pub(crate) mod history;
mod metrics;
pub(crate) mod openapi;
mod page;
mod paths;
mod problem;
mod requests;
mod scale;
mod status;
mod stream;
pub(crate) mod tls;
mod turn;

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Result, anyhow};
use axum::Router;
use pillarbox::Limits;
use pillarbox_relay::{
    Handle,
    check::Checks,
    connect::OpenStore,
    dead::DeadLetters,
    engine::Progress,
    event_log::{EventLog, Hub},
    health::HealthLimits,
    metrics::{Exporter, PREFIX},
    notice::Notices,
    route::Routes,
    scale::ScaleLimits,
    store::{Admin, RelayId},
};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use self::{access::audit::Operations, problem::Problem, tls::Tls};
use crate::config::{HttpSettings, Monitoring};

/// Without a configuration.
const STREAM_CLIENTS_MAX: usize = 100;
/// Besides the clients of the stream.
const CONNECTIONS_MAX: usize = 512;
/// When the process stops, for actions of operators. What a longer one has done is in the history of the letters, but not
/// in the log.
const ACTION_TIME_MAX: Duration = Duration::from_secs(10);
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// What the handlers share.
pub(crate) struct Api {
    admin: Arc<dyn Admin>,
    dead_letters: Arc<dyn DeadLetters>,
    notices: Notices,
    catalog: catalog::Shared,
    /// For the life of an event, whether or not its route has a log.
    event_log: Option<Arc<dyn EventLog>>,
    /// `None`: no route has a log.
    hub: Option<Hub>,
    health_checks: bool,
    /// `None`: there are no metrics.
    metrics_prefix: Option<String>,
    health_limits: HealthLimits,
    scale_limits: ScaleLimits,
    replay_allowed: bool,
    limits: Limits,
    large_bodies: Semaphore,
    writers: Semaphore,
    relay: OnceLock<Running>,
    store_status: status::Cache,
    stream_clients: Arc<Semaphore>,
    stream_clients_max: usize,
    /// Held while entries of the log are counted.
    counting: tokio::sync::Mutex<()>,
    operations: Operations,
    closing: CancellationToken,
    /// `None`: everybody on this machine may do everything.
    access: Option<HttpSettings>,
}

/// The relay of this process.
struct Running {
    id: RelayId,
    progress: Arc<Progress>,
    metrics: Option<Exporter>,
}

impl Api {
    pub(crate) fn new(open: &OpenStore) -> Self {
        Self {
            admin: open.admin.clone(),
            dead_letters: open.dead_letters.clone(),
            notices: open.notices(),
            catalog: catalog::Shared::default(),
            event_log: open.event_log.clone(),
            hub: None,
            health_checks: true,
            metrics_prefix: Some(PREFIX.into()),
            health_limits: HealthLimits::default(),
            scale_limits: ScaleLimits::default(),
            replay_allowed: true,
            limits: Limits::default(),
            large_bodies: Semaphore::new(events::WRITERS_MAX),
            writers: Semaphore::new(events::WRITERS_MAX),
            relay: OnceLock::new(),
            store_status: status::Cache::default(),
            stream_clients: Arc::new(Semaphore::new(STREAM_CLIENTS_MAX)),
            stream_clients_max: STREAM_CLIENTS_MAX,
            counting: tokio::sync::Mutex::default(),
            operations: Operations::default(),
            closing: CancellationToken::new(),
            access: None,
        }
    }

    /// Whether routes have an event log. Then it is served.
    pub(crate) fn event_log(self, event_log: bool) -> Self {
        let hub = self.event_log.clone().filter(|_| event_log).map(Hub::start);
        Self { hub, ..self }
    }

    /// The event log and its streams.
    fn log(&self) -> Result<(&dyn EventLog, &Hub), Problem> {
        let log = self.event_log.as_deref().zip(self.hub.as_ref());
        log.ok_or_else(history::no_log)
    }

    /// Whether dead events may be sent again.
    pub(crate) fn replay_allowed(self, replay_allowed: bool) -> Self {
        Self {
            replay_allowed,
            ..self
        }
    }

    /// The routes of events and their checks.
    pub(crate) fn delivering(self, routes: Routes, checks: Option<Arc<Checks>>) -> Self {
        Self {
            catalog: catalog::Shared::new(routes, checks),
            ..self
        }
    }

    /// The limits of an event.
    pub(crate) fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Who may use it, and under which names it is reached.
    pub(crate) fn access(self, settings: HttpSettings) -> Self {
        Self {
            stream_clients: Arc::new(Semaphore::new(settings.stream_clients_max)),
            stream_clients_max: settings.stream_clients_max,
            access: Some(settings),
            ..self
        }
    }

    /// What it serves for supervisors and Prometheus.
    pub(crate) fn monitoring(self, monitoring: &Monitoring) -> Self {
        Self {
            health_checks: monitoring.health_checks,
            metrics_prefix: monitoring.metrics_prefix.clone(),
            health_limits: monitoring.limits,
            scale_limits: monitoring.scale,
            ..self
        }
    }

    /// From now on there is a relay to report about.
    pub(crate) fn relay_started(&self, relay: &Handle) {
        let running = Running {
            id: relay.id,
            progress: relay.progress.clone(),
            metrics: self
                .metrics_prefix
                .as_deref()
                .map(|prefix| relay.metrics(prefix, self.scale_limits)),
        };
        let _ = self.relay.set(running);
    }

    /// Ends the streams, so that the server can stop.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Waits a little for actions of operators. Their clients may have gone.
    pub(crate) async fn finish(&self) {
        let _ = tokio::time::timeout(ACTION_TIME_MAX, self.operations.finished()).await;
    }
}

/// A running server.
pub(crate) struct Server {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(Duration::from_secs(2), self.task).await;
    }
}

pub(crate) async fn bind(listen: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(
            "another program uses {listen}. Choose another address with --listen 127.0.0.1:PORT (0 takes a free port) or `outbox.http.listen`, or turn HTTP off with --no-http"
        ),
        _ => anyhow!("can't listen on {listen}: {error}"),
    })
}

/// The whole API. `tls` makes it HTTPS.
pub(crate) fn serve(listener: TcpListener, tls: Option<Arc<Tls>>, api: Arc<Api>) -> Server {
    let stop = CancellationToken::new();
    let router = paths::router(api.clone(), &stop);
    let connections_max = CONNECTIONS_MAX + api.stream_clients_max;
    start(listener, tls, router, connections_max, stop)
}

/// Only metrics and health checks. Other machines may reach them, under any name and without a token. Pages of other
/// origins may not read them.
pub(crate) fn serve_monitoring(listener: TcpListener, api: Arc<Api>) -> Server {
    let router = paths::monitoring(api);
    start(listener, None, router, CONNECTIONS_MAX, CancellationToken::new())
}

fn start(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    connections_max: usize,
    stop: CancellationToken,
) -> Server {
    if let Some(tls) = &tls {
        tokio::spawn(tls.clone().watch(stop.clone()));
    }
    let limits = connections::Limits {
        connections_max,
        write_time_max: WRITE_TIME_MAX,
    };
    let task = connections::serve(listener, router, tls, limits, stop.clone());
    let task = tokio::spawn(task);
    Server { stop, task }
}
