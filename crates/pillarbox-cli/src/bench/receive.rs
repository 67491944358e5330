//! The other side: when everything has arrived, and in what order.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use async_nats::jetstream::{consumer::DeliverPolicy, consumer::pull::OrderedConfig};
use futures::StreamExt;
use tokio::sync::mpsc;

use super::{
    arena::Arena,
    events::{Check, Mark},
};

pub(super) enum Receiver {
    /// Reads the stream afterwards, with a client that is not ours.
    Nats(async_nats::jetstream::Context),
    /// Reads the relays' stdout.
    Stdout(mpsc::UnboundedReceiver<String>, Vec<(Mark, SystemTime)>),
    /// Nothing can be read back: only the store tells that all is settled.
    Store,
}

/// Something that arrived, and when.
pub(super) struct Arrival {
    pub(super) mark: Mark,
    pub(super) at: SystemTime,
}

impl Receiver {
    /// And where the relays' stdout is to go.
    pub(super) async fn open(arena: &Arena) -> Result<(Self, Option<mpsc::UnboundedSender<String>>)> {
        if arena.is_nats() {
            return Ok((Self::Nats(arena.nats().await?), None));
        }
        if arena.sink_options.url.starts_with("stdout:") {
            let (sender, receiver) = mpsc::unbounded_channel();
            return Ok((Self::Stdout(receiver, Vec::new()), Some(sender)));
        }
        Ok((Self::Store, None))
    }

    /// How many events have arrived so far, of `total`.
    pub(super) async fn arrived(&mut self, arena: &Arena, total: u64) -> Result<u64> {
        match self {
            Self::Nats(nats) => Ok(nats.get_stream(&arena.stream).await?.cached_info().state.messages),
            Self::Stdout(lines, seen) => {
                while let Ok(line) = lines.try_recv() {
                    seen.extend(mark_of_line(&line).map(|mark| (mark, SystemTime::now())));
                }
                Ok(seen.len() as u64)
            }
            Self::Store => {
                let status = arena
                    .store
                    .admin
                    .status()
                    .await
                    .map_err(|error| anyhow::anyhow!(error.chain()))?;
                Ok(total.saturating_sub(status.pending + status.failed + status.held))
            }
        }
    }

    /// Waits until all have arrived, or nothing has for a long time. `tick` is told the count.
    pub(super) async fn wait_for(
        &mut self,
        arena: &Arena,
        total: u64,
        relays: &mut super::relays::Relays,
        mut tick: impl FnMut(u64),
    ) -> Result<u64> {
        const GIVE_UP: Duration = Duration::from_secs(60);
        let (mut last, mut since) = (0, std::time::Instant::now());
        let pause = Duration::from_millis(if matches!(self, Self::Store) { 200 } else { 20 });
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

    /// Everything that arrived, in its order. `None` when it can't be read back.
    pub(super) async fn read_back(self, arena: &Arena, mut each: impl FnMut(Arrival)) -> Result<Option<()>> {
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
            Self::Nats(nats) => {
                let stream = nats.get_stream(&arena.stream).await?;
                let total = stream.cached_info().state.messages;
                let config = OrderedConfig {
                    deliver_policy: DeliverPolicy::All,
                    ..Default::default()
                };
                let mut messages = stream.create_consumer(config).await?.messages().await?;
                for _ in 0..total {
                    let message = messages.next().await.context("the stream ended early")??;
                    let info = message.info().map_err(|error| anyhow::anyhow!(error))?;
                    let at = SystemTime::UNIX_EPOCH
                        + Duration::from_nanos(info.published.unix_timestamp_nanos() as u64);
                    each(Arrival {
                        mark: serde_json::from_slice(&message.payload)?,
                        at,
                    });
                }
                Ok(Some(()))
            }
        }
    }
}

/// `None` for a relay's closing summary, which comes on the same stdout.
fn mark_of_line(line: &str) -> Option<Mark> {
    #[derive(serde::Deserialize)]
    struct Line {
        payload: Mark,
    }
    serde_json::from_str::<Line>(line).ok().map(|line| line.payload)
}

/// Checks what arrived. `None` when it can't be read back.
pub(super) async fn check(receiver: Receiver, arena: &Arena, counts: &[u32]) -> Result<Option<Check>> {
    let mut check = Check::new(counts);
    let read = receiver
        .read_back(arena, |arrival| check.saw(arrival.mark))
        .await?;
    Ok(read.map(|()| check))
}
