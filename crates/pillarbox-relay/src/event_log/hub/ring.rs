//! The latest delivered events, as lines of JSON.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use pillarbox::{Event, wire};

use crate::{
    envelope::{line, whole::Place},
    event::StoredEvent,
    event_log::{LogEntry, LogFilter, LogOutcome, Position},
};

const LINES_MAX: usize = 20_000;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// A delivered event, ready to be sent.
#[derive(Debug)]
pub struct Line {
    pub position: Position,
    /// One JSON object and a line break.
    pub text: Bytes,
    /// What filters look at: the event without its payload.
    event: Event,
}

impl Line {
    /// `None` if the event's payload is not JSON, which neither the outbox nor the relay accepts.
    pub(super) fn new(entry: LogEntry) -> Option<Self> {
        let stored = StoredEvent {
            seq: entry.seq,
            lane: 0,
            attempts: entry.attempts,
            created_at: entry.created_at,
            event: entry.event,
        };
        let mut text = Vec::with_capacity(stored.bytes());
        let place = Place {
            position: entry.position,
            published_at: entry.at,
        };
        if let Err(error) = line::write_entry(&mut text, &stored, place) {
            tracing::error!(position = entry.position, %error, "an entry of the event log can't be shown");
            return None;
        }
        text.push(b'\n');
        let mut event = stored.event;
        event.payload = Bytes::new();
        event.headers.retain(|name, _| name == wire::CORRELATION_ID);
        Some(Self {
            position: entry.position,
            text: text.into(),
            event,
        })
    }

    fn bytes(&self) -> usize {
        const FIELDS: usize = 512;
        self.text.len() + FIELDS
    }
}

/// The delivered events between two positions of the log.
#[derive(Default)]
pub(super) struct Ring {
    lines: VecDeque<Arc<Line>>,
    bytes: usize,
    /// Everything after this position is here, up to `reached`.
    after: Position,
    reached: Position,
    started: bool,
}

impl Ring {
    pub(super) fn after(after: Position) -> Self {
        Self {
            after,
            reached: after,
            started: true,
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, entries: Vec<LogEntry>, reached: Position) {
        for entry in entries {
            if entry.outcome == LogOutcome::Published
                && let Some(line) = Line::new(entry)
            {
                self.bytes += line.bytes();
                self.lines.push_back(Arc::new(line));
            }
        }
        self.reached = reached;
        while self.lines.len() > 1 && (self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX) {
            if let Some(dropped) = self.lines.pop_front() {
                self.bytes -= dropped.bytes();
                self.after = dropped.position;
            }
        }
    }

    /// The lines after a position that a client wants, and the position up to which they were looked at. `None`: the
    /// ring does not reach back to this position.
    pub(super) fn take(
        &self,
        after: Position,
        filter: &LogFilter,
        lines_max: usize,
        bytes_max: usize,
    ) -> Option<(Vec<Arc<Line>>, Position)> {
        if !self.started || after < self.after {
            return None;
        }
        let first = self.lines.partition_point(|line| line.position <= after);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for line in self.lines.range(first..) {
            if !filter.selects(&line.event) {
                continue;
            }
            if taken.len() == lines_max || bytes > bytes_max {
                let last: &Arc<Line> = &taken[taken.len() - 1];
                let reached = last.position;
                return Some((taken, reached));
            }
            bytes += line.text.len();
            taken.push(line.clone());
        }
        // A client that came from the log itself may be ahead of the ring.
        Some((taken, self.reached.max(after)))
    }
}
