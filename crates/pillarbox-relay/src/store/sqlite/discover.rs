//! Discovery. SQLite lets one transaction write at a time, so seqs are committed in order. The last seq read is the
//! whole cursor, and every seq up to it is decided.

use std::sync::Arc;

use async_trait::async_trait;

use super::{assumptions, connection::Connections, row};
use crate::{
    event::{Lane, Seq},
    store::{HeldLane, Page, PageLimit, Reader, StoreError},
};

pub(super) struct SqliteReader {
    connections: Arc<Connections>,
    lanes: String,
    /// The low marks, by lane.
    marks: Box<[Seq; 256]>,
    /// Every event up to this seq was returned, or was settled before.
    after: Seq,
    /// Every event that existed when the reader was opened has been returned.
    caught_up: bool,
}

impl SqliteReader {
    pub(super) fn new(connections: Arc<Connections>, held: &[HeldLane]) -> Self {
        let mut marks = Box::new([0; 256]);
        for held in held {
            marks[usize::from(held.lane)] = held.low_mark;
        }
        Self {
            connections,
            lanes: lanes_json(held),
            marks,
            after: held.iter().map(|held| held.low_mark).min().unwrap_or(0),
            caught_up: false,
        }
    }
}

#[async_trait]
impl Reader for SqliteReader {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        let at = &self.connections;
        // Read before the page: every event committed by now is in the page, or after its last event.
        let top: Seq = sqlx::query_scalar(at.statements.discover_top.clone())
            .fetch_one(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        let mut page = Page {
            decided: self.after,
            ..Page::default()
        };
        if top < self.after {
            // Either rows were deleted, which is harmless, or the sequence went back.
            assumptions::check_reader(at, self.after).await?;
        }
        if top <= self.after {
            self.caught_up = true;
            page.reached = Seq::MAX;
            return Ok(page);
        }
        let rows = sqlx::query(at.statements.discover_page.clone())
            .bind(self.after)
            .bind(&self.lanes)
            .bind(size(limit.events))
            .bind(size(limit.bytes))
            .bind(size(limit.payload_bytes_max))
            .fetch_all(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        let mut candidates = 0;
        let mut last = self.after;
        for row in &rows {
            candidates = sqlx::Row::try_get::<i64, _>(row, row::CANDIDATES).map_err(|e| at.error(e))?;
            match row::event(row, limit).map_err(|e| at.error(e))? {
                Ok(event) => {
                    last = event.seq;
                    if event.seq > self.marks[usize::from(event.lane)] {
                        page.events.push(event);
                    }
                }
                Err(unreadable) => {
                    last = unreadable.seq;
                    if unreadable.seq > self.marks[usize::from(unreadable.lane)] {
                        page.unreadable.push(unreadable);
                    }
                }
            }
        }
        page.more = candidates == size(limit.events) || size(rows.len()) < candidates;
        self.after = if page.more { last } else { last.max(top) };
        page.decided = self.after;
        self.caught_up |= !page.more;
        page.reached = if self.caught_up { Seq::MAX } else { self.after };
        Ok(page)
    }
}

/// As `[0,1,…]`: SQLite has no arrays, but it can read JSON.
pub(super) fn lanes_json(held: &[HeldLane]) -> String {
    json(&held.iter().map(|held| held.lane).collect::<Vec<Lane>>())
}

pub(super) fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    // Lists of numbers and strings: writing them as JSON can't fail.
    serde_json::to_string(value).unwrap_or_else(|_| "[]".into())
}

pub(super) fn size(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
