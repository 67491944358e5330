//! Turns the rows of a statement into a page.

use pillarbox::Limits;
use sqlx::{Row, postgres::PgRow};

use super::{super::row, Snapshot, SnapshotReader, unusable};
use crate::{
    event::{Seq, StoredEvent, Unreadable},
    store::{Page, PageLimit, StoreError, StoreErrorKind},
};

/// Where the columns of the event begin in the statements' rows.
const EVENT_COLUMNS: usize = 5;

/// The result of a statement.
pub(super) struct Found {
    pub(super) snapshot: Option<Snapshot>,
    pub(super) page: Page,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    pub(super) last_seq: Option<Seq>,
    pub(super) total: usize,
    pub(super) truncated: bool,
    /// The page ends before an event that is too large for the statement of small events.
    pub(super) cut: bool,
    /// The lowest event that is at or below its lane's low mark, or below a decided seq.
    pub(super) lowest: Option<Seq>,
}

impl SnapshotReader {
    /// Reads the rows. With `small`, a larger event has only its size.
    pub(super) fn found(
        &mut self,
        rows: Vec<PgRow>,
        limit: PageLimit,
        small: Option<usize>,
    ) -> Result<Found, StoreError> {
        let limits = Limits::default().payload_bytes_max(limit.payload_bytes_max);
        let mut found = Found {
            snapshot: None,
            page: Page::default(),
            rows: 0,
            bytes: 0,
            last_seq: None,
            total: 0,
            truncated: false,
            cut: false,
            lowest: None,
        };
        found.page.events.reserve_exact(rows.len());
        for (index, row) in rows.iter().enumerate() {
            if index == 0 {
                self.same_server(row, 1)?;
                let head = |e| self.connection.explain(e);
                let last_taken: Option<Seq> = row.try_get(2).map_err(head)?;
                let total: Option<i64> = row.try_get(3).map_err(head)?;
                found.truncated = row.try_get::<Option<bool>, _>(4).map_err(head)?.unwrap_or(false);
                found.total = usize::try_from(total.unwrap_or(0)).unwrap_or(usize::MAX);
                self.last_taken = self.last_taken.max(last_taken.unwrap_or(0));
            }
            if found.snapshot.is_none() {
                let text: Option<&str> = row.try_get(0).map_err(|e| self.connection.explain(e))?;
                found.snapshot = text
                    .map(|text| text.parse().map_err(|_| unusable("a snapshot can't be read")))
                    .transpose()?;
            }
            let no_event = row
                .try_get::<Option<Seq>, _>(EVENT_COLUMNS)
                .map_err(|e| self.connection.explain(e))?
                .is_none();
            if no_event {
                continue;
            }
            if small.is_some_and(|small| row::size(row, EVENT_COLUMNS) > small) {
                found.cut = true;
                break;
            }
            found.rows += 1;
            found.bytes += row::fetched(row, EVENT_COLUMNS, limit.payload_bytes_max);
            found.add(
                row::event(row, EVENT_COLUMNS, &limits),
                &self.low_marks,
                self.decided,
            );
        }
        // The statements return them in this order, but SQL does not guarantee it.
        if !found.page.events.is_sorted_by_key(|event| event.seq) {
            found.page.events.sort_by_key(|event| event.seq);
        }
        Ok(found)
    }

    pub(super) fn same_server(&mut self, row: &PgRow, column: usize) -> Result<(), StoreError> {
        let start = row
            .try_get_raw(column)
            .ok()
            .and_then(|value| value.as_bytes().ok().and_then(|b| <[u8; 8]>::try_from(b).ok()))
            .map(i64::from_be_bytes)
            .ok_or_else(|| unusable("the server's start can't be read"))?;
        if *self.server_start.get_or_insert(start) == start {
            return Ok(());
        }
        Err(StoreError::new(
            StoreErrorKind::Away,
            "the database has been restarted: reading again from the low marks",
        ))
    }
}

impl Found {
    fn add(&mut self, read: Result<StoredEvent, Unreadable>, low_marks: &[Seq; 256], decided: Seq) {
        let (seq, lane) = match &read {
            Ok(event) => (event.seq, event.lane),
            Err(unreadable) => (unreadable.seq, unreadable.lane),
        };
        self.last_seq = self.last_seq.max(Some(seq));
        let low_mark = low_marks[usize::from(lane)];
        if seq <= low_mark.max(decided) {
            self.lowest = Some(self.lowest.map_or(seq, |lowest| lowest.min(seq)));
        }
        // A page starts at the lowest low mark; each lane has its own.
        if seq <= low_mark {
            return;
        }
        match read {
            Ok(event) => self.page.events.push(event),
            Err(unreadable) => self.page.unreadable.push(unreadable),
        }
    }
}
