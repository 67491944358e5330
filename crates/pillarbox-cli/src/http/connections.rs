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
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

pub(super) use self::timely::ReadBy;
use self::timely::Timely;
use super::tls::{self, Tls};

/// The timeout for a request's head, and for the time between two requests. Without it, silent clients could
/// block everybody else, including health checks of this relay.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);

/// The upper bound for the head of a request, and for what is buffered of one connection. A larger head is answered
/// with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A client that vanished is noticed after a minute and a half, even if nothing is written to it.
const SILENT: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// The other end of a connection. Each request has it as an extension.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The common name of its certificate, if it had to show one.
    pub(super) certified: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) connections_max: usize,
    /// A client that reads nothing of an answer for this time is disconnected, so that it does not block others.
    pub(super) write_time_max: Duration,
}

/// Runs until `stop`; then requests that have begun are answered.
pub(super) async fn serve(
    mut listener: TcpListener,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let open = GracefulShutdown::new();
    loop {
        let (stream, address, place) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&mut listener, &places) => accepted,
        };
        let keepalive = TcpKeepalive::new()
            .with_time(SILENT)
            .with_interval(PROBE_EVERY)
            .with_retries(PROBES);
        // If the system does not support it, the next write fails instead.
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let read_by = ReadBy::default();
        let stream = Timely::new(stream, limits.write_time_max, read_by.clone());
        let (router, watcher) = (router.clone(), open.watcher());
        // The certificate of this moment.
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        tokio::spawn(async move {
            let mut peer = Peer {
                address,
                certified: None,
            };
            match acceptor {
                None => converse(stream, router, (peer, read_by), watcher).await,
                Some(acceptor) => {
                    if let Some(stream) = greeted(&acceptor, stream).await {
                        let shown = stream.get_ref().1.peer_certificates();
                        let own = shown.and_then(|chain| tls::common_name(chain.first()?));
                        peer.certified = own.map(Into::into);
                        converse(stream, router, (peer, read_by), watcher).await;
                    }
                }
            }
            drop(place);
        });
    }
    open.shutdown().await;
}

/// The handshake, which must not take longer than the head of a request.
async fn greeted<S: AsyncRead + AsyncWrite + Unpin>(
    acceptor: &TlsAcceptor,
    stream: S,
) -> Option<TlsStream<S>> {
    match tokio::time::timeout(HEAD_TIME_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Answers the requests of one connection. Each has the peer and the deadline as extensions.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    stream: S,
    router: Router,
    (peer, read_by): (Peer, ReadBy),
    watcher: Watcher,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(read_by.clone());
        router.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::trace!(%error, "a connection broke");
    }
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
