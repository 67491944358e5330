//! Limits the number of connections; further ones wait. A connection without a request, or whose client does
//! not read the answer, is closed.

mod timely;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, serve::Listener};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;

use self::timely::Timely;

const CONNECTIONS_MAX: usize = 512;
/// The timeout for a request's head, and for the time between two requests. Without it, silent clients could
/// block everybody else, including health checks of this relay.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);

/// A client that vanished is noticed after a minute and a half, even if nothing is written to it.
const SILENT: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// The other end of a connection. Each request has it as an extension.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
}

/// Runs until `stop`; then requests that have begun are answered. A client that reads nothing of an answer
/// for `write_time_max` is disconnected.
pub(super) async fn serve(
    mut listener: TcpListener,
    router: Router,
    write_time_max: Duration,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    loop {
        let (stream, address, place) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&mut listener, &places) => accepted,
        };
        let (router, peer) = (TowerToHyperService::new(router.clone()), Peer { address });
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            router.call(request)
        });
        let keepalive = TcpKeepalive::new()
            .with_time(SILENT)
            .with_interval(PROBE_EVERY)
            .with_retries(PROBES);
        // If the system does not support it, the next write fails instead.
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let stream = TokioIo::new(Timely::new(stream, write_time_max));
        let connection = open.watch(http.serve_connection(stream, service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::trace!(%error, "a connection broke");
            }
            drop(place);
        });
    }
    open.shutdown().await;
}

/// The semaphore is never closed, so there is always a place eventually.
async fn accept(
    listener: &mut TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
    let place = places.clone().acquire_owned().await.ok();
    let (stream, address) = Listener::accept(listener).await;
    (stream, address, place)
}

#[cfg(test)]
mod tests;
