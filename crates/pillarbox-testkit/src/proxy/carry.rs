//! One connection through the proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::try_join;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::{Fault, Order, Traffic};

const CHUNK_BYTES: usize = 64 * 1024;

/// How a connection ends before both sides closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

pub(super) async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    mut orders: watch::Receiver<Order>,
    traffic: Arc<Traffic>,
) {
    let mut server = match meet(target, &mut orders).await {
        Ok(server) => server,
        Err(End::Closed) => return,
        Err(End::Reset) => return reset(&client),
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let there = Pump::new(
            from_client,
            to_server,
            orders.clone(),
            &traffic.to_target,
            Way::ToTarget,
        );
        let back = Pump::new(
            from_server,
            to_client,
            orders.clone(),
            &traffic.to_client,
            Way::ToClient,
        );
        tokio::select! {
            ended = try_join(there.run(), back.run()) => ended.err().unwrap_or(End::Closed),
            end = sentence(&mut orders) => end,
        }
    };
    if end == End::Reset {
        reset(&client);
        reset(&server);
    }
}

/// Connects to the target, if the current fault allows it.
async fn meet(target: SocketAddr, orders: &mut watch::Receiver<Order>) -> Result<TcpStream, End> {
    loop {
        let fault = orders.borrow_and_update().fault;
        match fault {
            Fault::Refuse => return Err(End::Closed),
            Fault::Reset => return Err(End::Reset),
            Fault::Pause => changed(orders).await?,
            Fault::BlackHole => {
                changed(orders).await?;
                return Err(End::Reset);
            }
            Fault::Pass | Fault::Delay(_) | Fault::CutAfter(_) | Fault::DropReplies => break,
        }
    }
    TcpStream::connect(target).await.map_err(|_| End::Reset)
}

/// Waits until a fault requires the end of the connection.
async fn sentence(orders: &mut watch::Receiver<Order>) -> End {
    loop {
        match orders.borrow_and_update().fault {
            Fault::Refuse => return End::Closed,
            Fault::Reset => return End::Reset,
            _ => {}
        }
        if changed(orders).await.is_err() {
            return End::Closed;
        }
    }
}

async fn changed(orders: &mut watch::Receiver<Order>) -> Result<(), End> {
    orders.changed().await.map_err(|_| End::Closed)
}

/// A socket with a linger time of zero is closed by a reset, even if it still has data to send.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToTarget,
    ToClient,
}

/// One direction of a connection.
struct Pump<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    orders: watch::Receiver<Order>,
    carried: &'a AtomicU64,
    way: Way,
    /// The fault number that the two fields below belong to.
    order: u64,
    bytes_until_cut: u64,
    has_lost_bytes: bool,
}

impl<'a> Pump<'a> {
    fn new(
        from: ReadHalf<'a>,
        to: WriteHalf<'a>,
        orders: watch::Receiver<Order>,
        carried: &'a AtomicU64,
        way: Way,
    ) -> Self {
        Self {
            from,
            to,
            orders,
            carried,
            way,
            order: u64::MAX,
            bytes_until_cut: 0,
            has_lost_bytes: false,
        }
    }

    /// Runs until the sender closes its side, or the connection has to end.
    async fn run(mut self) -> Result<(), End> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let fault = self.fault().await?;
            let read = tokio::select! {
                biased;
                ordered = changed(&mut self.orders) => { ordered?; continue }
                read = self.from.read(&mut chunk) => read.map_err(|_| End::Reset)?,
            };
            if read == 0 {
                // If bytes are lost, the end of the stream is lost, too.
                if self.swallows(fault) {
                    changed(&mut self.orders).await?;
                    return Err(End::Reset);
                }
                return self.to.shutdown().await.map_err(|_| End::Reset);
            }
            self.pass_on(&chunk[..read]).await?;
        }
    }

    async fn pass_on(&mut self, chunk: &[u8]) -> Result<(), End> {
        let mut allowed = chunk;
        let mut cut = false;
        match self.fault().await? {
            fault if self.swallows(fault) => {
                self.has_lost_bytes = true;
                return Ok(());
            }
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::CutAfter(_) if self.way == Way::ToTarget => {
                let length = u64::try_from(chunk.len())
                    .unwrap_or(u64::MAX)
                    .min(self.bytes_until_cut);
                self.bytes_until_cut -= length;
                allowed = &chunk[..usize::try_from(length).unwrap_or(usize::MAX)];
                cut = self.bytes_until_cut == 0;
            }
            _ => {}
        }
        self.to.write_all(allowed).await.map_err(|_| End::Reset)?;
        self.carried
            .fetch_add(u64::try_from(allowed.len()).unwrap_or(0), Ordering::Relaxed);
        if cut {
            let _ = self.to.shutdown().await;
            return Err(End::Closed);
        }
        Ok(())
    }

    /// The current fault, as soon as it is one that lets data move.
    async fn fault(&mut self) -> Result<Fault, End> {
        loop {
            let Order { number, fault } = *self.orders.borrow_and_update();
            if number != self.order {
                self.order = number;
                self.bytes_until_cut = if let Fault::CutAfter(bytes) = fault {
                    bytes
                } else {
                    0
                };
            }
            if self.has_lost_bytes && !self.swallows(fault) {
                return Err(End::Reset);
            }
            if fault != Fault::Pause {
                return Ok(fault);
            }
            changed(&mut self.orders).await?;
        }
    }

    fn swallows(&self, fault: Fault) -> bool {
        fault == Fault::BlackHole || (fault == Fault::DropReplies && self.way == Way::ToClient)
    }
}
