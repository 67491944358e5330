//! The receiving side: whether everything has arrived, and in which order.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Result;
use tokio::sync::mpsc;

use super::{
    arena::Arena,
    broker::{Arrival, Broker},
    events::{Check, Mark},
    store_error,
};

pub(super) enum Receiver {
    /// Reads the stream or topic afterwards, with the bare client.
    Broker(Arc<dyn Broker>),
    /// Reads the relays' stdout.
    Stdout(mpsc::UnboundedReceiver<String>, Vec<(Mark, SystemTime)>),
    /// Nothing can be read back. Only the store says whether everything is settled.
    Store,
}

impl Receiver {
    /// Also returns the channel for the relays' stdout.
    pub(super) fn open(arena: &Arena) -> (Self, Option<mpsc::UnboundedSender<String>>) {
        if let Some(broker) = &arena.broker {
            return (Self::Broker(broker.clone()), None);
        }
        if arena.sink_options.url.starts_with("stdout:") {
            let (sender, receiver) = mpsc::unbounded_channel();
            return (Self::Stdout(receiver, Vec::new()), Some(sender));
        }
        (Self::Store, None)
    }

    /// How many events have arrived so far, of `total`.
    pub(super) async fn arrived(&mut self, arena: &Arena, total: u64) -> Result<u64> {
        match self {
            Self::Broker(broker) => broker.arrived().await,
            Self::Stdout(lines, seen) => {
                while let Ok(line) = lines.try_recv() {
                    seen.extend(mark_of_line(&line).map(|mark| (mark, SystemTime::now())));
                }
                Ok(seen.len() as u64)
            }
            Self::Store => {
                let status = arena.store.admin.status().await.map_err(store_error)?;
                Ok(total.saturating_sub(status.pending + status.failed + status.held))
            }
        }
    }

    /// Waits until all events have arrived, or none has for a long time. `tick` receives the count.
    pub(super) async fn wait_for(
        &mut self,
        arena: &Arena,
        total: u64,
        relays: &mut super::relays::Relays,
        mut tick: impl FnMut(u64),
    ) -> Result<u64> {
        const GIVE_UP: Duration = Duration::from_secs(60);
        let (mut last, mut since) = (0, std::time::Instant::now());
        let pause = Duration::from_millis(match self {
            Self::Broker(broker) => broker.look_every_ms(),
            Self::Stdout(..) => 20,
            Self::Store => 200,
        });
        loop {
            let arrived = self.arrived(arena, total).await?;
            tick(arrived);
            if arrived >= total {
                return Ok(arrived);
            }
            if arrived > last {
                (last, since) = (arrived, std::time::Instant::now());
            } else if since.elapsed() > GIVE_UP {
                return Ok(arrived);
            }
            relays.check().await?;
            tokio::time::sleep(pause).await;
        }
    }

    /// Everything that arrived, in order. `None` if it can't be read back.
    pub(super) async fn read_back(self, mut each: impl FnMut(Arrival) + Send) -> Result<Option<()>> {
        match self {
            Self::Store => Ok(None),
            Self::Stdout(mut lines, seen) => {
                seen.into_iter().for_each(|(mark, at)| each(Arrival { mark, at }));
                while let Ok(line) = lines.try_recv() {
                    if let Some(mark) = mark_of_line(&line) {
                        each(Arrival {
                            mark,
                            at: SystemTime::now(),
                        });
                    }
                }
                Ok(Some(()))
            }
            Self::Broker(broker) => broker.read_back(&mut each).await.map(Some),
        }
    }
}

/// Returns `None` for the relay's closing summary, which is on the same stdout.
fn mark_of_line(line: &str) -> Option<Mark> {
    #[derive(serde::Deserialize)]
    struct Line {
        payload: Mark,
    }
    serde_json::from_str::<Line>(line).ok().map(|line| line.payload)
}

/// Checks what arrived. `None` if it can't be read back.
pub(super) async fn check(receiver: Receiver, counts: &[u32]) -> Result<Option<Check>> {
    let mut check = Check::new(counts);
    let read = receiver.read_back(|arrival| check.saw(arrival.mark)).await?;
    Ok(read.map(|()| check))
}
