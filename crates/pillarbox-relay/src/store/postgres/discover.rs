//! Finds committed events with a snapshot cursor.
//!
//! A reader remembers the last snapshot that it has read completely. Events committed since then are those that
//! this snapshot did not see: rows of transactions from its xmax on, and of those that were in progress then. The
//! index on txid finds both, whatever was settled since. A transaction that commits late is found when it commits.
//! If there is more than a page, the pages continue by seq under the new snapshot. After the last page, the reader
//! follows from that snapshot.
//!
//! A cursor exists only in memory. A new reader starts at the low marks of its lanes and pages by seq and status.
//!
//! An event that is committed below a decided seq shows that an assumption has failed. The reader then lowers the
//! marks and ends. See [`assumptions`](super::assumptions).

mod found;

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::table::Tables;
use sqlx::Row;

use self::found::Found;
use super::{
    assumptions::Assumptions,
    connection::{Connection, Sql, arguments, statement},
    marks::{Mark, Marks},
    seen::Seen,
    snapshot::Snapshot,
};
use crate::{
    event::Seq,
    store::{HeldLane, Page, PageLimit, Reader, StoreError, StoreErrorKind, limits},
};

/// Up to this many rows (or more for large pages) are found by txid at once. If there are more, they are read by
/// seq.
const SCAN_ROWS_MIN: usize = 2_000;
/// The most seqs that one page covers: a statement that reads a long range of settled events must end in time.
const PAGE_SPAN: Seq = 500_000;

pub(super) struct Statements {
    page: Sql,
    small: Sql,
    follow: Sql,
    mark: Sql,
    late: Sql,
    below: Sql,
    next: Sql,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            page: statement(tables, include_str!("sql/discover/page.sql")),
            small: statement(tables, include_str!("sql/discover/small.sql")),
            follow: statement(tables, include_str!("sql/discover/follow.sql")),
            mark: statement(tables, include_str!("sql/discover/mark.sql")),
            late: statement(tables, include_str!("sql/discover/late.sql")),
            below: statement(tables, include_str!("sql/discover/below.sql")),
            next: statement(tables, include_str!("sql/discover/next.sql")),
        }
    }
}

pub(super) struct SnapshotReader {
    connection: Arc<Connection>,
    statements: Arc<Statements>,
    assumptions: Arc<Assumptions>,
    seen: Arc<Seen>,
    held: Vec<HeldLane>,
    /// A bit for each lane: the lookup costs the same for one lane and for all. (An array of 256 is searched from
    /// its start for every row, which took a twentieth of the server's time in a drain.)
    lanes: Option<[u8; 32]>,
    /// By lane.
    low_marks: [Seq; 256],
    state: State,
    decided: Seq,
    marks: Marks,
    /// When the server started. After a crash, the server may assign xids again that were not yet on disk. So a
    /// cursor is invalid after a restart of the server.
    server_start: Option<i64>,
    /// The highest seq known to be taken.
    last_taken: Seq,
    /// The next event is large: the page that starts with it is read by size.
    large_next: bool,
}

enum State {
    Opening,
    Paging(Paging),
    Following { since: Snapshot },
}

/// The pages of one snapshot, by seq.
struct Paging {
    snapshot: Snapshot,
    /// Events that this snapshot saw were returned before; `None`: there is no such snapshot.
    since: Option<Snapshot>,
    after: Seq,
    /// Every seq up to this one was decided when the snapshot was taken.
    decided: Option<Seq>,
}

impl SnapshotReader {
    pub(super) fn new(
        connection: Arc<Connection>,
        statements: Arc<Statements>,
        assumptions: Arc<Assumptions>,
        seen: Arc<Seen>,
        lanes: &[HeldLane],
    ) -> Self {
        let mut low_marks = [0; 256];
        for held in lanes {
            low_marks[usize::from(held.lane)] = held.low_mark;
        }
        Self {
            connection,
            statements,
            assumptions,
            seen,
            held: lanes.to_vec(),
            low_marks,
            lanes: (!lanes.is_empty()).then(|| lane_bits(lanes)),
            state: State::Opening,
            decided: lanes.iter().map(|held| held.low_mark).min().unwrap_or(0),
            marks: Marks::default(),
            server_start: None,
            last_taken: 0,
            large_next: false,
        }
    }

    async fn open(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        self.take_mark().await?;
        let up_to = self.page_end(self.decided);
        let found = self.read_page(None, None, self.decided, up_to, limit).await?;
        // After the page, because this checks what the page's snapshot saw.
        self.look_below().await?;
        let Some(snapshot) = found.snapshot.clone() else {
            return Err(unusable("a page came without its snapshot"));
        };
        let paging = Paging {
            decided: self.marks.decided_in(&snapshot),
            snapshot,
            since: None,
            after: self.decided,
        };
        self.turn_page(paging, found, up_to, limit).await
    }

    async fn page(&mut self, paging: Paging, limit: PageLimit) -> Result<Page, StoreError> {
        let up_to = self.page_end(paging.after);
        let (snapshot, since) = (Some(&paging.snapshot), paging.since.as_ref());
        let found = self
            .read_page(snapshot, since, paging.after, up_to, limit)
            .await?;
        if since.is_some() {
            self.none_below(found.lowest).await?;
        }
        self.turn_page(paging, found, up_to, limit).await
    }

    /// The last seq of a page that starts after this one. There is little beyond the highest known seq.
    fn page_end(&self, after: Seq) -> Seq {
        match after.saturating_add(PAGE_SPAN) {
            end if end < self.last_taken => end,
            _ => Seq::MAX,
        }
    }

    /// Events committed since the last snapshot must lie above every seq that was decided in it.
    async fn none_below(&self, found: Option<Seq>) -> Result<(), StoreError> {
        match found {
            Some(seq) => Err(self.assumptions.lower(&self.connection, &self.held, seq).await),
            None => Ok(()),
        }
    }

    /// The same for events that were committed while no relay read the lanes.
    async fn look_below(&self) -> Result<(), StoreError> {
        let highest = self.low_marks.iter().copied().max().unwrap_or(0);
        if highest == 0 {
            return Ok(());
        }
        let mut marks = vec![-1; 256];
        for held in &self.held {
            marks[usize::from(held.lane)] = held.low_mark;
        }
        let rows = self
            .connection
            .rows(&self.statements.below, arguments!(marks, highest)?)
            .await?;
        let below = rows.first().map(|row| row.try_get(0)).transpose();
        self.none_below(below.map_err(|e| self.connection.explain(e))?)
            .await
    }

    async fn follow(&mut self, since: Snapshot, limit: PageLimit) -> Result<Page, StoreError> {
        if self.marks.are_worth_taking(self.last_taken) {
            self.take_mark().await?;
        }
        let scan_rows_max = limit.events.max(SCAN_ROWS_MIN) + 1;
        let arguments = arguments!(
            since.xmax.to_string(),
            since.in_progress_texts(),
            self.lanes.as_ref().map(<[u8; 32]>::as_slice),
            limit.events as i64,
            scan_rows_max as i64,
            limit.payload_bytes_max as i64,
            limit.bytes as i64,
        )?;
        let rows = self.connection.rows(&self.statements.follow, arguments).await?;
        let found = self.found(rows, limit, None)?;
        self.none_below(found.lowest).await?;
        let Some(snapshot) = found.snapshot.clone() else {
            return Err(unusable("an answer came without its snapshot"));
        };
        let decided = self.marks.decided_in(&snapshot);
        if found.truncated {
            let after = self.lowest_new(&since, &snapshot).await?;
            let paging = Paging {
                snapshot,
                since: Some(since),
                after,
                decided,
            };
            return self.page(paging, limit).await;
        }
        if found.rows == found.total {
            self.through(snapshot, decided);
            return Ok(self.answer(found.page, false));
        }
        let paging = Paging {
            snapshot,
            since: Some(since),
            after: found.last_seq.unwrap_or(self.decided),
            decided,
        };
        self.delivered(&paging);
        self.state = State::Paging(paging);
        Ok(self.answer(found.page, true))
    }

    /// Handles a page of a paging snapshot and decides what comes next.
    async fn turn_page(
        &mut self,
        mut paging: Paging,
        found: Found,
        up_to: Seq,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        // A page may be short because the next event did not fit. Only a page with room left is the last.
        let next = limits::row_bytes_max(limit.payload_bytes_max);
        let room = !found.cut && found.bytes.saturating_add(next) <= limit.bytes;
        if found.rows == 0 || (found.rows < limit.events && room) {
            let Some(next) = self.behind(up_to).await? else {
                self.through(paging.snapshot, paging.decided);
                // The snapshot is as old as its first page, so events committed since then can be read at once.
                return Ok(self.answer(found.page, true));
            };
            paging.after = next - 1;
        } else {
            paging.after = found.last_seq.unwrap_or(paging.after);
        }
        self.delivered(&paging);
        self.state = State::Paging(paging);
        Ok(self.answer(found.page, true))
    }

    /// The first seq after the end of a page that did not read to the end of the table.
    async fn behind(&self, up_to: Seq) -> Result<Option<Seq>, StoreError> {
        if up_to == Seq::MAX {
            return Ok(None);
        }
        let row = self
            .connection
            .row(&self.statements.next, arguments!(up_to)?)
            .await?;
        row.try_get(0).map_err(|e| self.connection.explain(e))
    }

    /// Called when every event visible in the snapshot has been returned.
    fn through(&mut self, snapshot: Snapshot, decided: Option<Seq>) {
        self.decided = self.decided.max(decided.unwrap_or(0));
        self.marks.drop_up_to(&snapshot);
        self.seen.read(&self.held, snapshot.xmin);
        self.state = State::Following { since: snapshot };
    }

    /// Called when every event visible in the snapshot up to `after` has been returned.
    fn delivered(&mut self, paging: &Paging) {
        let decided = paging.decided.map_or(0, |seq| seq.min(paging.after));
        self.decided = self.decided.max(decided);
    }

    fn answer(&self, page: Page, more: bool) -> Page {
        let reached = match &self.state {
            State::Opening => self.decided,
            State::Paging(Paging {
                since: None, after, ..
            }) => *after,
            State::Paging(_) | State::Following { .. } => Seq::MAX,
        };
        Page {
            decided: self.decided,
            reached,
            more,
            ..page
        }
    }

    /// A seq below which no event lies that `snapshot` sees and `since` did not. The decided seq would be correct
    /// too, but after one old transaction every burst would read again everything that came after it.
    async fn lowest_new(&self, since: &Snapshot, snapshot: &Snapshot) -> Result<Seq, StoreError> {
        let started_later = self.marks.below(since.xmax).unwrap_or(self.decided);
        let arguments = arguments!(
            since.in_progress_texts(),
            &snapshot.text,
            self.lanes.as_ref().map(<[u8; 32]>::as_slice),
            since.xmax.to_string(),
            started_later,
        )?;
        let row = self.connection.row(&self.statements.late, arguments).await?;
        let read = || {
            Ok((
                row.try_get::<Option<Seq>, _>(0)?,
                row.try_get::<Option<Seq>, _>(1)?,
            ))
        };
        let (late, below) = read().map_err(|e| self.connection.explain(e))?;
        self.none_below(below).await?;
        Ok(late.map_or(started_later, |seq| started_later.min(seq - 1)))
    }

    async fn read_page(
        &mut self,
        snapshot: Option<&Snapshot>,
        since: Option<&Snapshot>,
        after: Seq,
        up_to: Seq,
        limit: PageLimit,
    ) -> Result<Found, StoreError> {
        // A full page of events of this size fits into the limit on bytes.
        let small = limit.payload_bytes_max.min(limit.bytes / limit.events);
        let lanes = self.lanes;
        let lanes = lanes.as_ref().map(<[u8; 32]>::as_slice);
        let (snapshot, since) = (snapshot.map(|s| &s.text), since.map(|s| &s.text));
        let events = limit.events as i64;
        if !std::mem::take(&mut self.large_next) {
            let arguments = arguments!(snapshot, since, after, lanes, events, small as i64, up_to)?;
            let rows = self.connection.rows(&self.statements.small, arguments).await?;
            let found = self.found(rows, limit, Some(small))?;
            self.large_next = found.cut;
            if !found.cut || found.rows > 0 {
                return Ok(found);
            }
            self.large_next = false;
        }
        let arguments = arguments!(
            snapshot,
            since,
            after,
            lanes,
            events,
            limit.payload_bytes_max as i64,
            limit.bytes as i64,
            up_to,
        )?;
        let rows = self.connection.rows(&self.statements.page, arguments).await?;
        self.found(rows, limit, None)
    }

    async fn take_mark(&mut self) -> Result<(), StoreError> {
        let row = self.connection.row(&self.statements.mark, arguments!()?).await?;
        let (seq, xid) = (|| Ok((row.try_get::<Seq, _>(0)?, row.try_get::<&str, _>(1)?)))()
            .map_err(|e| self.connection.explain(e))?;
        let xid = xid.parse().map_err(|_| unusable("an xid can't be read"))?;
        self.same_server(&row, 2)?;
        self.last_taken = self.last_taken.max(seq);
        self.marks.add(Mark { seq, xid });
        Ok(())
    }
}

#[async_trait]
impl Reader for SnapshotReader {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        if self.lanes.is_none() {
            return Ok(self.answer(Page::default(), false));
        }
        let limit = PageLimit {
            events: limit.events.max(1),
            ..limit
        };
        // After an error the cursor has not moved, and reading again would be correct. The contract does not
        // require it.
        match std::mem::replace(&mut self.state, State::Opening) {
            State::Opening => self.open(limit).await,
            State::Paging(paging) => self.page(paging, limit).await,
            State::Following { since } => self.follow(since, limit).await,
        }
    }
}

/// In the bit order of PostgreSQL's `get_bit`.
fn lane_bits(lanes: &[HeldLane]) -> [u8; 32] {
    let mut bits = [0; 32];
    for held in lanes {
        bits[usize::from(held.lane / 8)] |= 1 << (held.lane % 8);
    }
    bits
}

fn unusable(what: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        format!("the database's answer can't be used: {what}"),
    )
}
