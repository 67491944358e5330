//! A file of lines: one JSON object for each event, in the format of `stdout:`. An event counts as delivered after it
//! is synced to the disk. Files are rotated by size.
//!
//! `address` has the settings; `writer` appends, syncs and rotates.

mod address;
mod writer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::Mutex;

pub use self::address::Address;
use self::writer::Writer;
use super::{Capabilities, Outcome, Outgoing, Sink, SinkError, SinkErrorKind, in_order::in_order};
use crate::{connect::SinkOptions, envelope::line};

pub struct FileSink {
    /// A fair lock, so that batches are written in the order of their calls.
    writer: Arc<Mutex<Writer>>,
    publish_timeout: Duration,
}

impl FileSink {
    /// `file:path[?rotate_bytes=N&keep=N]`. Does not touch the file yet.
    pub fn open(options: &SinkOptions) -> Result<Self, SinkError> {
        let address = Address::parse(&options.url)?;
        Ok(Self {
            writer: Arc::new(Mutex::new(Writer::new(address))),
            publish_timeout: options.publish_timeout,
        })
    }

    async fn with_writer(
        &self,
        work: impl FnOnce(&mut Writer, Duration) -> Result<(), SinkError> + Send + 'static,
    ) -> Result<(), SinkError> {
        let timeout = self.publish_timeout;
        // The task owns the guard. So a dropped call still writes whole batches, and the next batch waits for it.
        let mut writer = self.writer.clone().lock_owned().await;
        let done = tokio::task::spawn_blocking(move || work(&mut writer, timeout));
        let ended = |error| SinkError::new(SinkErrorKind::Unavailable, format!("the writer ended: {error}"));
        done.await.unwrap_or_else(|error| Err(ended(error).in_doubt()))
    }
}

#[async_trait]
impl Sink for FileSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        let checked = self.with_writer(|writer, timeout| writer.check(timeout)).await;
        checked.map_err(|error| match error.kind {
            SinkErrorKind::Misconfigured => error,
            // Whatever prevents writing now may pass.
            _ => SinkError::new(SinkErrorKind::Unreachable, error.message),
        })
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let mut lines = Vec::with_capacity(batch.iter().map(|o| o.event.bytes()).sum());
        let mut outcomes = in_order(batch, |outgoing| line::write(&mut lines, outgoing));
        if lines.is_empty() {
            return outcomes;
        }
        let written = self.with_writer(move |writer, timeout| writer.append(&lines, timeout));
        if let Err(error) = written.await {
            let delivered = |outcome: &&mut Outcome| **outcome == Outcome::Delivered;
            for outcome in outcomes.iter_mut().filter(delivered) {
                *outcome = Outcome::Failed(error.clone());
            }
        }
        outcomes
    }
}
