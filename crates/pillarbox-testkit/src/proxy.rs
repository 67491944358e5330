//! The fault proxy: forwards TCP connections and simulates network faults, controlled at run time.
//!
//! A fault affects existing connections as well as new ones. A connection that lost bytes to a fault can't
//! continue after it, because its receiver would read across a gap. It is reset then, as by a real network.

mod carry;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::servers::free_port;

/// The state of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    Pass,
    /// Nothing listens; existing connections are closed.
    Refuse,
    /// Connections are reset, new ones as soon as they are made.
    Reset,
    /// Connections are accepted, and everything sent on them is lost, in both directions.
    BlackHole,
    /// Everything arrives this much later. At most 64 KiB are in transit, so it is also a slow network.
    Delay(Duration),
    /// Each connection is closed after this many more bytes to the target.
    CutAfter(u64),
    /// The target gets everything and its answers are lost: the work is done, but the client never learns it.
    DropReplies,
    /// Nothing moves; after the pause everything continues where it was.
    Pause,
}

/// A proxy in front of one address. Dropping it ends it and its connections.
pub struct Proxy {
    port: u16,
    target: SocketAddr,
    wanted: watch::Sender<Order>,
    obeyed: watch::Receiver<u64>,
    traffic: Arc<Traffic>,
    listening: JoinHandle<()>,
}

/// A fault with its number, so that setting the same fault twice counts as two.
#[derive(Debug, Clone, Copy)]
struct Order {
    number: u64,
    fault: Fault,
}

#[derive(Debug, Default)]
struct Traffic {
    connections: AtomicU64,
    to_target: AtomicU64,
    to_client: AtomicU64,
}

/// A port on which a proxy will listen. For a target that needs the proxy's port before it starts.
pub struct Reserved {
    listener: TcpListener,
    port: u16,
}

impl Reserved {
    /// Reserves a free loopback port.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn port() -> Self {
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", free_port())).await {
                Ok(listener) => break listener,
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("the proxy can't listen: {error}"),
            }
        };
        let port = listener.local_addr().map_or(0, |address| address.port());
        Self { listener, port }
    }

    pub fn number(&self) -> u16 {
        self.port
    }

    /// Starts the proxy.
    pub fn start(self, target: SocketAddr) -> Proxy {
        let Self { listener, port } = self;
        let traffic = Arc::new(Traffic::default());
        let (wanted, orders) = watch::channel(Order {
            number: 0,
            fault: Fault::Pass,
        });
        let (obey, obeyed) = watch::channel(0);
        let listening = tokio::spawn(listen(listener, target, orders, obey, Arc::clone(&traffic)));
        Proxy {
            port,
            target,
            wanted,
            obeyed,
            traffic,
            listening,
        }
    }
}

impl Proxy {
    /// Starts on a free loopback port.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start(target: SocketAddr) -> Self {
        Reserved::port().await.start(target)
    }

    /// Starts in front of the server of a URL with a loopback address and a port. See [`Proxy::through`].
    ///
    /// # Panics
    /// If the URL has no such address.
    pub async fn in_front_of(url: &str) -> Self {
        let target = authority(url)
            .parse()
            .unwrap_or_else(|_| panic!("{url}: no address with a port"));
        Self::start(target).await
    }

    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Turns a URL of the target into one through the proxy.
    pub fn through(&self, url: &str) -> String {
        url.replacen(&self.target.to_string(), &self.address().to_string(), 1)
    }

    /// Sets the state of the network. When this returns, new connections get the new fault, and existing ones
    /// do as soon as they check.
    pub async fn set(&self, fault: Fault) {
        let mut number = 0;
        self.wanted.send_modify(|order| {
            *order = Order {
                number: order.number + 1,
                fault,
            };
            number = order.number;
        });
        let done = self
            .obeyed
            .clone()
            .wait_for(|obeyed| *obeyed >= number)
            .await
            .is_ok();
        assert!(done, "the proxy has ended: it could not listen on its port again");
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.traffic.connections.load(Ordering::Relaxed)
    }

    /// Bytes passed to the target so far.
    pub fn bytes_to_target(&self) -> u64 {
        self.traffic.to_target.load(Ordering::Relaxed)
    }

    /// Bytes passed to clients so far.
    pub fn bytes_to_client(&self) -> u64 {
        self.traffic.to_client.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// `127.0.0.1:4222` out of `nats://user@127.0.0.1:4222/path`.
fn authority(url: &str) -> &str {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = after_scheme.split(['/', '?']).next().unwrap_or(after_scheme);
    host.rsplit_once('@').map_or(host, |(_, address)| address)
}

async fn listen(
    listener: TcpListener,
    target: SocketAddr,
    mut orders: watch::Receiver<Order>,
    obey: watch::Sender<u64>,
    traffic: Arc<Traffic>,
) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        let order = *orders.borrow_and_update();
        if order.fault == Fault::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
            if listener.is_none() {
                return;
            }
        }
        obey.send_replace(order.number);
        let accept = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = orders.changed() => if changed.is_err() { return },
            accepted = accept => if let Ok((client, _)) = accepted {
                traffic.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(carry::carry(client, target, orders.clone(), Arc::clone(&traffic)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

#[cfg(test)]
mod tests;
