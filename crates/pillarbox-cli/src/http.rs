//! The HTTP API and the page. Loopback only: access by token comes later.

mod catalog;
mod connections;
pub(crate) mod dead;
mod events;
mod health;
mod metrics;
mod problem;
mod scale;
mod status;
mod stream;

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Result, anyhow};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use futures::{StreamExt, stream::unfold};
use pillarbox::Limits;
use pillarbox_relay::{
    Handle,
    check::Checks,
    connect::OpenStore,
    dead::DeadLetters,
    engine::Progress,
    health::HealthLimits,
    metrics::{Exporter, PREFIX},
    notice::Notices,
    route::Routes,
    scale::ScaleLimits,
    sink::http_stream::HttpStream,
    store::{Admin, RelayId},
};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::config::Monitoring;

const STREAM_CLIENTS_MAX: usize = 100;
/// Longer than any handler itself waits for a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// A client that reads nothing for this time is disconnected, so that it does not block others.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// What the handlers share.
pub(crate) struct Api {
    admin: Arc<dyn Admin>,
    dead_letters: Arc<dyn DeadLetters>,
    notices: Notices,
    catalog: catalog::Shared,
    hub: Option<Arc<HttpStream>>,
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
    closing: CancellationToken,
}

/// The relay of this process.
struct Running {
    id: RelayId,
    progress: Arc<Progress>,
    metrics: Option<Exporter>,
}

impl Api {
    pub(crate) fn new(open: &OpenStore, hub: Option<Arc<HttpStream>>) -> Self {
        Self {
            admin: open.admin.clone(),
            dead_letters: open.dead_letters.clone(),
            notices: open.notices(),
            catalog: catalog::Shared::default(),
            hub,
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
            closing: CancellationToken::new(),
        }
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

/// The whole API, for this machine only.
pub(crate) fn serve(listener: TcpListener, api: Arc<Api>) -> Server {
    start(listener, router(api))
}

/// Only metrics and health checks. Other machines may reach them.
pub(crate) fn serve_monitoring(listener: TcpListener, api: Arc<Api>) -> Server {
    let router = monitoring(&api).layer(middleware::from_fn(timely_body));
    start(listener, router.with_state(api))
}

fn start(listener: TcpListener, router: Router) -> Server {
    let stop = CancellationToken::new();
    let task = connections::serve(listener, router, WRITE_TIME_MAX, stop.clone());
    let task = tokio::spawn(task);
    Server { stop, task }
}

fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/v1/stream", get(stream::handler))
        .route("/v1/events", post(events::write))
        .route("/v1/status", get(status::handler))
        .route("/v1/scale", get(scale::handler))
        .route("/v1/catalog", get(catalog::handler))
        .merge(dead::router())
        .merge(monitoring(&api))
        .layer(middleware::from_fn(timely_body))
        .layer(middleware::from_fn(loopback_host))
        .with_state(api)
}

fn monitoring(api: &Api) -> Router<Arc<Api>> {
    let mut router = Router::new();
    if api.metrics_prefix.is_some() {
        router = router.route("/metrics", get(metrics::handler));
    }
    if api.health_checks {
        router = router
            .route("/livez", get(health::live))
            .route("/readyz", get(health::ready))
            .route("/healthz", get(health::health));
    }
    router
}

async fn page() -> impl IntoResponse {
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:";
    (
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(include_str!("http/page.html")),
    )
}

/// A body that does not arrive in time ends with an error, so that its connection is free again.
async fn timely_body(request: Request, next: Next) -> Response {
    let end = tokio::time::Instant::now() + BODY_TIME_MAX;
    let timely = request.map(|body| {
        Body::from_stream(unfold(body.into_data_stream(), move |mut parts| async move {
            let part = tokio::time::timeout_at(end, parts.next()).await;
            let part = part.unwrap_or_else(|_| Some(Err(axum::Error::new("the body took too long"))))?;
            Some((part, parts))
        }))
    });
    next.run(timely).await
}

/// A page of another site can point its own name at 127.0.0.1 and let a browser read this API. So only
/// requests to a loopback name are answered.
async fn loopback_host(request: Request, next: Next) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    if host.is_none_or(is_loopback) {
        return next.run(request).await;
    }
    (
        StatusCode::MISDIRECTED_REQUEST,
        "This is served to this machine only: use http://127.0.0.1 or http://localhost.\n",
    )
        .into_response()
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_this_machines_own_names_are_answered() {
        for host in [
            "127.0.0.1:7420",
            "localhost",
            "LOCALHOST:1",
            "[::1]:7420",
            "[::1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["evil.example:7420", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
