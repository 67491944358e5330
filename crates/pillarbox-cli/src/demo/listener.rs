//! A client of the stream, as anybody could write one: it connects over HTTP and records what it receives.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use pillarbox::EventId;
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::shop::Order;

/// A received event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Seen {
    pub(super) id: EventId,
    pub(super) partition_key: Option<String>,
}

pub(super) struct Listener {
    seen: Arc<Mutex<Vec<Seen>>>,
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(address)
            .await
            .context("can't reach the demo's own stream")?;
        // HTTP/1.0 has no chunks: after the head, the body is plain lines until the server closes.
        stream
            .write_all(b"GET /v1/stream?after=0 HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .await?;
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next_line().await?.unwrap_or_default();
        if !status.contains(" 200 ") {
            bail!("the demo's own stream answered `{status}`");
        }
        while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}

        let seen = Arc::new(Mutex::new(Vec::new()));
        let (counted, count) = watch::channel(0);
        let notes = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // A line that is not an event reports a gap. The verdict will find the missing events.
                if let Ok(event) = serde_json::from_str::<Seen>(&line) {
                    notes.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                    counted.send_modify(|count| *count += 1);
                }
            }
        });
        Ok(Self { seen, count, task })
    }

    /// How long the event took to arrive; `None` if it did not arrive within `patience`.
    pub(super) async fn wait_for(&self, id: EventId, patience: Duration) -> Option<Duration> {
        let began = Instant::now();
        self.until(began + patience, |seen| seen.iter().any(|event| event.id == id))
            .await
            .then(|| began.elapsed())
    }

    /// Everything received, as soon as all committed events have arrived or `patience` is over.
    pub(super) async fn finish(self, books: &[Order], patience: Duration) -> Vec<Seen> {
        let committed = books.iter().filter(|order| order.committed).count();
        self.until(Instant::now() + patience, |seen| seen.len() >= committed)
            .await;
        // Duplicates and uncommitted events would come after the last expected event: wait a moment for them.
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.task.abort();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn until(&self, deadline: Instant, enough: impl Fn(&[Seen]) -> bool) -> bool {
        let mut count = self.count.clone();
        loop {
            count.borrow_and_update();
            if enough(&self.seen.lock().unwrap_or_else(PoisonError::into_inner)) {
                return true;
            }
            if !matches!(timeout_at(deadline, count.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
    }
}
