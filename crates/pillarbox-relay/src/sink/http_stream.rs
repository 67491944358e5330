//! The stream of events in memory that the HTTP API serves. It keeps the latest events, and subscribers follow it.
//!
//! This module contains no HTTP. It waits for no subscriber. A subscriber that is too slow gets the number of events
//! that it missed, and continues at the oldest event that is kept.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::{Capabilities, Outcome, Outgoing, Sink, SinkError, in_order::in_order};
use crate::envelope::line;

const EVENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// An event's place in the stream, from 1. It starts again at 1 with each process.
pub type Position = u64;

pub struct HttpStream {
    hub: Arc<Hub>,
}

struct Hub {
    kept: Mutex<Kept>,
    /// The latest position. `None` if the stream has ended.
    latest: watch::Sender<Option<Position>>,
}

struct Kept {
    lines: VecDeque<Bytes>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    /// The position of the next event.
    next: Position,
}

impl Default for HttpStream {
    fn default() -> Self {
        Self::keeping(EVENTS_MAX, BYTES_MAX)
    }
}

impl HttpStream {
    /// Keeps up to this many events and bytes, and always the latest event.
    pub fn keeping(events_max: usize, bytes_max: usize) -> Self {
        Self {
            hub: Arc::new(Hub {
                kept: Mutex::new(Kept {
                    lines: VecDeque::new(),
                    bytes: 0,
                    events_max: events_max.max(1),
                    bytes_max,
                    next: 1,
                }),
                latest: watch::Sender::new(Some(0)),
            }),
        }
    }

    /// Follows the stream from a position, as far as it is kept, or from now on. A position that does not exist yet is
    /// from an earlier process: the subscription then starts at the oldest event that is kept.
    pub fn subscribe(&self, from: Option<Position>) -> Subscription {
        let kept = self.hub.kept();
        let next = match from {
            None => kept.next,
            Some(from) if from > kept.next => kept.oldest(),
            Some(from) => from.max(1),
        };
        Subscription {
            latest: self.hub.latest.subscribe(),
            hub: self.hub.clone(),
            next,
        }
    }

    pub fn subscribers(&self) -> usize {
        self.hub.latest.receiver_count()
    }

    /// Ends every subscription after it has received what is kept.
    pub fn close(&self) {
        self.hub.latest.send_replace(None);
    }
}

impl Drop for HttpStream {
    fn drop(&mut self) {
        self.close();
    }
}

impl Hub {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn oldest(&self) -> Position {
        self.next - self.lines.len() as u64
    }

    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
        self.next += 1;
        while self.lines.len() > 1 && (self.lines.len() > self.events_max || self.bytes > self.bytes_max) {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }

    fn get(&self, position: Position) -> Option<Bytes> {
        let index = usize::try_from(position.checked_sub(self.oldest())?).ok()?;
        self.lines.get(index).cloned()
    }
}

/// One reader of the stream.
pub struct Subscription {
    hub: Arc<Hub>,
    latest: watch::Receiver<Option<Position>>,
    next: Position,
}

impl Subscription {
    /// Returns the next line, with its line break, and its position. After a gap it returns the line `{"skipped":n}`
    /// with the position of the last event that was missed. `None` if the stream has ended. Dropping the call loses
    /// nothing.
    pub async fn next(&mut self) -> Option<(Position, Bytes)> {
        loop {
            let ended = self.latest.borrow_and_update().is_none();
            if let Some(found) = self.take() {
                return Some(found);
            }
            if ended || self.latest.changed().await.is_err() {
                return None;
            }
        }
    }

    fn take(&mut self) -> Option<(Position, Bytes)> {
        let kept = self.hub.kept();
        let oldest = kept.oldest();
        if self.next < oldest {
            let skipped = oldest - self.next;
            self.next = oldest;
            return Some((oldest - 1, Bytes::from(format!("{{\"skipped\":{skipped}}}\n"))));
        }
        let line = kept.get(self.next)?;
        self.next += 1;
        Some((self.next - 1, line))
    }
}

#[async_trait]
impl Sink for HttpStream {
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
        let mut kept = self.hub.kept();
        let outcomes = in_order(batch, |outgoing| {
            let mut line = Vec::with_capacity(outgoing.event.bytes());
            line::write(&mut line, outgoing, Some(kept.next))?;
            kept.push(line.into());
            Ok(())
        });
        let latest = kept.next - 1;
        drop(kept);
        self.hub.latest.send_if_modified(|known| match known {
            Some(known) if *known < latest => {
                *known = latest;
                true
            }
            _ => false,
        });
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredEvent;

    fn batch(payloads: &[&str]) -> Vec<Outgoing> {
        let outgoing = |(seq, payload): (usize, &&str)| Outgoing {
            event: Arc::new(StoredEvent {
                seq: seq as i64,
                lane: 0,
                attempts: 0,
                created_at: jiff::Timestamp::UNIX_EPOCH,
                event: pillarbox::Event::to("t")
                    .event_type("X")
                    .aggregate("thing", seq.to_string())
                    .payload(payload.to_string()),
            }),
            stream: None,
            envelope: Default::default(),
        };
        payloads.iter().enumerate().map(outgoing).collect()
    }

    #[tokio::test]
    async fn a_slow_subscriber_learns_of_the_gap_and_continues() {
        let stream = HttpStream::keeping(2, usize::MAX);
        let mut slow = stream.subscribe(None);
        stream.publish(&batch(&["1", "2", "3", "4", "5"])).await;
        assert_eq!(
            slow.next().await,
            Some((3, Bytes::from_static(b"{\"skipped\":3}\n")))
        );
        let (position, line) = slow.next().await.unwrap();
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (position, &line["position"], &line["payload"]),
            (4, &4.into(), &4.into())
        );
        assert_eq!(slow.next().await.unwrap().0, 5);
        stream.close();
        assert_eq!(slow.next().await, None);
    }

    #[tokio::test]
    async fn the_history_is_bounded_in_bytes() {
        let stream = HttpStream::keeping(1000, 5000);
        let large = format!("\"{}\"", "x".repeat(2000));
        for _ in 0..20 {
            stream.publish(&batch(&[&large, &large])).await;
        }
        assert!(stream.hub.kept().bytes <= 5000);
        stream
            .publish(&batch(&[&format!("\"{}\"", "x".repeat(9000))]))
            .await;
        assert_eq!(
            stream.hub.kept().lines.len(),
            1,
            "the latest is kept, whatever its size"
        );
    }

    #[tokio::test]
    async fn a_reader_resumes_where_it_was_and_a_foreign_position_gets_all_that_is_kept() {
        let stream = HttpStream::default();
        stream.publish(&batch(&["1", "2", "3"])).await;
        assert_eq!(stream.subscribe(Some(2)).next().await.unwrap().0, 2);
        assert_eq!(stream.subscribe(Some(9000)).next().await.unwrap().0, 1);
        let mut fresh = stream.subscribe(None);
        stream.publish(&batch(&["4"])).await;
        assert_eq!(fresh.next().await.unwrap().0, 4);
        assert_eq!(stream.subscribers(), 1);
    }

    #[tokio::test]
    async fn a_payload_with_line_breaks_stays_on_one_line() {
        let stream = HttpStream::default();
        stream.publish(&batch(&["{\n  \"a\": \"b\\n\"\r\n}"])).await;
        let (_, line) = stream.subscribe(Some(1)).next().await.unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["payload"]["a"], "b\n");
    }
}
