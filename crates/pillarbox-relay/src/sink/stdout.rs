//! Standard output: one line of JSON for each event.

use std::{
    io::{self, ErrorKind, Write},
    sync::Arc,
};

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::{Capabilities, Outcome, Outgoing, Sink, SinkError, SinkErrorKind, in_order::in_order};
use crate::envelope::line;

/// A batch is delivered when all of it is written and flushed. The sink waits for a reader that does not read, as is
/// usual with pipes: the reader is slow, not away.
pub struct Stdout {
    /// A fair lock, so that batches are written in the order of their calls.
    output: Arc<Mutex<Output>>,
}

struct Output {
    writer: Box<dyn Write + Send>,
    /// A write failed in the middle of a line. The next one starts on a new line.
    torn: bool,
}

impl Default for Stdout {
    fn default() -> Self {
        Self::to(io::stdout())
    }
}

impl Stdout {
    /// Writes to another target.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self {
            output: Arc::new(Mutex::new(Output {
                writer: Box::new(writer),
                torn: false,
            })),
        }
    }

    async fn write(&self, lines: Vec<u8>) -> Result<(), SinkError> {
        // The task owns the guard. So a dropped call still writes whole lines, and the next batch waits for it.
        let mut output = self.output.clone().lock_owned().await;
        tokio::task::spawn_blocking(move || output.write(&lines))
            .await
            .unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
            .map_err(problem)
    }
}

impl Output {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let result = (|| {
            if self.torn {
                self.writer.write_all(b"\n")?;
            }
            self.writer.write_all(lines)?;
            self.writer.flush()
        })();
        self.torn = result.is_err();
        result
    }
}

fn problem(error: io::Error) -> SinkError {
    match error.kind() {
        ErrorKind::BrokenPipe => SinkError::new(
            SinkErrorKind::Misconfigured,
            "the reader of standard output went away",
        ),
        _ => SinkError::new(
            SinkErrorKind::Unavailable,
            format!("can't write to standard output: {error}"),
        ),
    }
    .in_doubt()
}

#[async_trait]
impl Sink for Stdout {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let mut lines = Vec::with_capacity(batch.iter().map(|o| o.event.bytes()).sum());
        let mut outcomes = in_order(batch, |outgoing| line::write(&mut lines, outgoing));
        if lines.is_empty() {
            return outcomes;
        }
        if let Err(error) = self.write(lines).await {
            for outcome in outcomes
                .iter_mut()
                .filter(|outcome| **outcome == Outcome::Delivered)
            {
                *outcome = Outcome::Failed(error.clone());
            }
        }
        outcomes
    }
}
