//! Finding what was committed: the snapshot cursor.
//!
//! A reader remembers the last snapshot it has read whole. What was committed since is what that snapshot did not see:
//! rows of transactions from its xmax on, and of those then in progress. Both are found by the index on txid, whatever
//! was settled since, and a transaction that commits late is found when it does. Where there is more than a page, the
//! pages go on by seq under the new snapshot, and the reader follows from there when they are through.
//!
//! xids live in memory only. A new reader starts at the low mark of its lanes and pages by seq and status.

mod found;

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::table::Tables;
use sqlx::Row;

use self::found::Found;
use super::{
    connection::{Connection, Sql, arguments, statement},
    marks::{Mark, Marks},
    snapshot::Snapshot,
};
use crate::{
    event::Seq,
    store::{HeldLane, Page, PageLimit, Reader, StoreError, StoreErrorKind},
};

/// Rows found by txid at once, at least; beyond that they are read by seq.
const SCAN_ROWS_MIN: usize = 2_000;

pub(super) struct Statements {
    page: Sql,
    small: Sql,
    follow: Sql,
    mark: Sql,
    late: Sql,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            page: statement(tables, include_str!("discover_page.sql")),
            small: statement(tables, include_str!("discover_small.sql")),
            follow: statement(tables, include_str!("discover_follow.sql")),
            mark: statement(tables, include_str!("discover_mark.sql")),
            late: statement(tables, include_str!("discover_late.sql")),
        }
    }
}

pub(super) struct SnapshotReader {
    connection: Arc<Connection>,
    statements: Arc<Statements>,
    /// A bit for each lane: to look one up costs a row the same for one lane and for all. (An array of 256 is searched
    /// from its start for every row, which took a twentieth of the server's time in a drain.)
    lanes: Option<[u8; 32]>,
    /// By lane.
    low_marks: [Seq; 256],
    state: State,
    decided: Seq,
    marks: Marks,
    /// The server's start. xids that were not written down may be given out again after a crash, so a cursor is of no
    /// use on a server that has started since.
    server_start: Option<i64>,
    /// The last seq that anybody has taken, as far as was seen.
    last_taken: Seq,
    /// The next payload is a large one: the page that begins with it is read by size.
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
    /// What this one saw was returned before; `None`: nothing was.
    since: Option<Snapshot>,
    after: Seq,
    /// Every seq up to here was decided when the snapshot was taken.
    decided: Option<Seq>,
}

impl SnapshotReader {
    pub(super) fn new(connection: Arc<Connection>, statements: Arc<Statements>, lanes: &[HeldLane]) -> Self {
        let mut low_marks = [0; 256];
        for held in lanes {
            low_marks[usize::from(held.lane)] = held.low_mark;
        }
        Self {
            connection,
            statements,
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
        let found = self.read_page(None, None, self.decided, limit).await?;
        let Some(snapshot) = found.snapshot.clone() else {
            return Err(unusable("a page came without its snapshot"));
        };
        let paging = Paging {
            decided: self.marks.decided_in(&snapshot),
            snapshot,
            since: None,
            after: self.decided,
        };
        Ok(self.turn_page(paging, found, limit))
    }

    async fn page(&mut self, paging: Paging, limit: PageLimit) -> Result<Page, StoreError> {
        let found = self
            .read_page(Some(&paging.snapshot), paging.since.as_ref(), paging.after, limit)
            .await?;
        Ok(self.turn_page(paging, found, limit))
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
        let found = self.found(rows, limit, limit.payload_bytes_max)?;
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

    /// Takes a page of a paging snapshot and says what comes next.
    fn turn_page(&mut self, mut paging: Paging, found: Found, limit: PageLimit) -> Page {
        // A page can be short because the next payload would not have fitted: only one with room left is the last.
        let room = !found.cut && found.payload_bytes.saturating_add(limit.payload_bytes_max) <= limit.bytes;
        if found.rows == 0 || (found.rows < limit.events && room) {
            self.through(paging.snapshot, paging.decided);
            // The snapshot is as old as its first page: what was committed since can be read at once.
            return self.answer(found.page, true);
        }
        paging.after = found.last_seq.unwrap_or(paging.after);
        self.delivered(&paging);
        self.state = State::Paging(paging);
        self.answer(found.page, true)
    }

    /// Every event visible in the snapshot has been returned.
    fn through(&mut self, snapshot: Snapshot, decided: Option<Seq>) {
        self.decided = self.decided.max(decided.unwrap_or(0));
        self.marks.drop_up_to(&snapshot);
        self.state = State::Following { since: snapshot };
    }

    /// Every event visible in the snapshot has been returned as far as `after`.
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

    /// Below what no event lies that `snapshot` sees and `since` did not. Not simply what is decided: one old transaction
    /// would make every burst read all that came after it.
    async fn lowest_new(&self, since: &Snapshot, snapshot: &Snapshot) -> Result<Seq, StoreError> {
        let started_later = self.marks.below(since.xmax).unwrap_or(self.decided);
        let arguments = arguments!(
            since.in_progress_texts(),
            &snapshot.text,
            self.lanes.as_ref().map(<[u8; 32]>::as_slice),
        )?;
        let row = self.connection.row(&self.statements.late, arguments).await?;
        let late: Option<Seq> = row.try_get(0).map_err(|e| self.connection.explain(e))?;
        Ok(late.map_or(started_later, |seq| started_later.min(seq - 1)))
    }

    async fn read_page(
        &mut self,
        snapshot: Option<&Snapshot>,
        since: Option<&Snapshot>,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Found, StoreError> {
        // As many payloads of this size as the page has events fit into it.
        let small = limit.payload_bytes_max.min(limit.bytes / limit.events);
        let lanes = self.lanes;
        let lanes = lanes.as_ref().map(<[u8; 32]>::as_slice);
        let (snapshot, since) = (snapshot.map(|s| &s.text), since.map(|s| &s.text));
        let events = limit.events as i64;
        if !std::mem::take(&mut self.large_next) {
            let arguments = arguments!(snapshot, since, after, lanes, events, small as i64)?;
            let rows = self.connection.rows(&self.statements.small, arguments).await?;
            let found = self.found(rows, limit, small)?;
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
        )?;
        let rows = self.connection.rows(&self.statements.page, arguments).await?;
        self.found(rows, limit, limit.payload_bytes_max)
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
        // After an error the cursor is where it was, and reading again would be right too; but the contract asks for less.
        match std::mem::replace(&mut self.state, State::Opening) {
            State::Opening => self.open(limit).await,
            State::Paging(paging) => self.page(paging, limit).await,
            State::Following { since } => self.follow(since, limit).await,
        }
    }
}

/// As PostgreSQL's `get_bit` counts them.
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
