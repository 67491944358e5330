//! Spans that wait for the collector, within a limit of bytes.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use super::otlp::Spans;

/// One request. Collectors accept a few megabytes.
const REQUEST_BYTES: usize = 512 * 1024;

#[derive(Debug)]
pub(super) struct Queue {
    bytes_max: usize,
    waiting: Mutex<VecDeque<Spans>>,
    bytes: AtomicUsize,
    dropped: AtomicU64,
    /// A request is full.
    full: Notify,
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            waiting: Mutex::default(),
            bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            full: Notify::new(),
        }
    }

    /// Asked before an event is traced. So no message names a parent that is dropped because the queue is full.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < self.bytes_max
    }

    /// The spans of a batch. They may exceed the limit a little.
    pub(super) fn push(&self, spans: &Spans) {
        if spans.count == 0 {
            return;
        }
        self.bytes.fetch_add(spans.bytes.len(), Ordering::Relaxed);
        let mut waiting = self.lock();
        match waiting.back_mut() {
            Some(last) if last.bytes.len() < REQUEST_BYTES => last.append(spans),
            _ => {
                let mut request = Spans::default();
                request.append(spans);
                waiting.push_back(request);
            }
        }
        let full = waiting
            .front()
            .is_some_and(|first| first.bytes.len() >= REQUEST_BYTES);
        drop(waiting);
        if full {
            self.full.notify_one();
        }
    }

    /// The oldest spans, for one request. They count until [`sent`](Self::sent).
    pub(super) fn take(&self) -> Option<Spans> {
        self.lock().pop_front()
    }

    /// These spans need no room any more: the collector has them, or they are dropped.
    pub(super) fn sent(&self, spans: &Spans) {
        self.bytes.fetch_sub(spans.bytes.len(), Ordering::Relaxed);
    }

    pub(super) async fn full(&self) {
        self.full.notified().await;
    }

    pub(super) fn drop_spans(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Spans>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(bytes: usize) -> Spans {
        let mut spans = Spans::default();
        spans.bytes.resize(bytes, 1);
        spans.count += 3;
        spans
    }

    #[test]
    fn spans_share_a_request_until_it_is_full() {
        let queue = Queue::new(usize::MAX);
        for _ in 0..3 {
            queue.push(&spans(REQUEST_BYTES / 2));
        }
        queue.push(&Spans::default());
        let taken: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
        let taken: Vec<_> = taken
            .iter()
            .map(|spans| (spans.bytes.len(), spans.count))
            .collect();
        assert_eq!(taken, [(REQUEST_BYTES, 6), (REQUEST_BYTES / 2, 3)]);
    }

    #[test]
    fn there_is_room_again_when_spans_are_sent_and_not_before() {
        let queue = Queue::new(1_000);
        queue.push(&spans(1_000));
        assert!(!queue.has_room());
        let taken = queue.take().unwrap();
        assert!(!queue.has_room());
        queue.sent(&taken);
        assert!(queue.has_room());
    }
}
