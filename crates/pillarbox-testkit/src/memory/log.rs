//! An event log in memory, for tests of its readers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Event, EventId};
use pillarbox_relay::{
    event_log::{
        EventLog, Life, LogBounds, LogCounts, LogEntry, LogFilter, LogList, LogOutcome, LogRow, Place,
        Position, Stretch,
    },
    store::{PageLimit, StoreError},
};

use crate::gate::Gate;

/// What a reader reads of it is as of the call. Searches and lives are not implemented.
#[derive(Default)]
pub struct MemoryLog {
    log: Mutex<Log>,
    /// Reads wait here while it is closed.
    pub reading: Gate,
}

#[derive(Default)]
struct Log {
    rows: BTreeMap<Position, LogRow>,
    expired: Position,
}

impl MemoryLog {
    /// Appends deliveries behind the last row.
    pub fn append(&self, events: impl IntoIterator<Item = Event>) {
        let first = self.lock().last() + 1;
        for (position, event) in (first..).zip(events) {
            self.insert(position, event);
        }
    }

    /// Commits a delivery at a position.
    pub fn insert(&self, position: Position, event: Event) {
        let now = Timestamp::now();
        let entry = LogEntry {
            position,
            at: now,
            outcome: LogOutcome::Published,
            seq: position,
            created_at: now,
            attempts: 0,
            failures: Vec::new(),
            sink: None,
            relay: None,
            event,
        };
        self.lock().rows.insert(position, LogRow::Entry(Box::new(entry)));
    }

    /// Passes over positions, as a store does that may have lost entries.
    pub fn pass_over(&self, first: Position, last: Position) {
        let voids = LogRow::Void(Stretch { first, last });
        self.lock().rows.insert(last, voids);
    }

    /// Deletes entries up to a position because of their age.
    pub fn expire_to(&self, position: Position) {
        let mut log = self.lock();
        log.rows.retain(|at, _| *at > position);
        log.expired = position;
    }

    /// Deletes all rows and forgets what has expired.
    pub fn empty(&self) {
        *self.lock() = Log::default();
    }

    pub fn rows(&self) -> usize {
        self.lock().rows.len()
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn last(&self) -> Position {
        let last = self.rows.last_key_value().map_or(0, |(position, _)| *position);
        last.max(self.expired)
    }
}

#[async_trait]
impl EventLog for MemoryLog {
    async fn read(&self, after: Position, limit: PageLimit) -> Result<Vec<LogRow>, StoreError> {
        self.reading.pass().await;
        let log = self.lock();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for row in log.rows.range(after + 1..).map(|(_, row)| row).take(limit.events) {
            bytes += match row {
                LogRow::Entry(entry) => entry.event.payload.len(),
                LogRow::Void(_) => 0,
            };
            if !rows.is_empty() && bytes > limit.bytes {
                break;
            }
            rows.push(row.clone());
        }
        Ok(rows)
    }

    async fn places(&self, after: Position, count: usize) -> Result<Vec<Place>, StoreError> {
        let log = self.lock();
        let rows = log.rows.range(after + 1..).take(count);
        let place = |(_, row): (&Position, &LogRow)| Place {
            positions: Stretch {
                first: row.first(),
                last: row.position(),
            },
            at: Timestamp::now(),
        };
        Ok(rows.map(place).collect())
    }

    async fn mark(&self) -> Result<Position, StoreError> {
        let position = self.lock().last() + 1;
        self.pass_over(position, position);
        Ok(position)
    }

    async fn fill(&self, first: Position, last: Position) -> Result<(), StoreError> {
        let mut log = self.lock();
        for position in first..=last {
            let void = LogRow::Void(Stretch {
                first: position,
                last: position,
            });
            log.rows.entry(position).or_insert(void);
        }
        Ok(())
    }

    async fn skip(&self, first: Position, last: Position) -> Result<(), StoreError> {
        self.pass_over(first, last);
        Ok(())
    }

    async fn bounds(&self) -> Result<LogBounds, StoreError> {
        let log = self.lock();
        Ok(LogBounds {
            expired: log.expired,
            last: log.last(),
        })
    }

    async fn list(&self, _: &LogFilter, _: Option<Position>, _: usize) -> Result<LogList, StoreError> {
        Ok(LogList::default())
    }

    async fn life(&self, _: &EventId) -> Result<Option<Life>, StoreError> {
        Ok(None)
    }

    async fn counts(&self, _: &LogFilter, _: Position) -> Result<LogCounts, StoreError> {
        Ok(LogCounts::default())
    }

    async fn expire(&self, _: Duration, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
}
