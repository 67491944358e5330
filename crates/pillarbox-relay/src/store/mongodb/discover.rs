//! Finds committed events, in an order that keeps the order of each key.
//!
//! **The order.** An event's seq is a tick of the cluster's clock. It is assigned while its transaction runs, after
//! that transaction's snapshot was opened. Two transactions run one after the other if both change the document of
//! the same entity, or if one was committed before the other began. Then the later one's snapshot was opened after
//! the earlier one's commit, so its seqs are higher. (If they overlap, MongoDB lets only one of them change that
//! document.)
//!
//! **Late commits.** Transactions do not commit in the order of their seqs. So a reader has a position, the last
//! seq returned in order. For each page it takes a *snapshot* (one cluster time for all its queries). In it, the
//! reader first reads events that are pending up to the position and were not returned before: those were committed
//! late. Only if there are none, it reads the next page above the position. A snapshot that shows an event also
//! shows everything committed before that event's transaction began. So if two transactions run one after the
//! other, the earlier one's events are returned first, or in an earlier page, however late they are committed.
//!
//! Both queries use the index `pending`, which settled events leave: the cost grows with the unsettled events, not
//! with those delivered. The query for late events reads only the index, and returns what is in flight. Reading
//! takes 20 to 84 µs an event, 1,000 at a time in a debug build on two cores that others used. A page is one
//! command, or two while something is undecided.
//!
//! **Decided.** No event below a decided seq can be committed late. [`super::decided`] explains how this is known.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use mongodb::{
    ClientSession, Collection, SessionCursor,
    bson::{Document, RawDocumentBuf, doc},
    options::{Hint, ReadConcern},
};

use super::{
    connection::{Collections, Connection},
    decided::Deciding,
    document::{event, fetched_bytes, seq, seq_of, timestamp, timestamps},
};
use crate::{
    event::{Lane, Seq},
    store::{HeldLane, Page, PageLimit, Reader, StoreError, StoreErrorKind},
};

pub(super) struct MongoReader {
    connection: Arc<Connection>,
    lanes: Vec<i32>,
    /// By lane.
    low_marks: Box<[Seq; 256]>,
    /// Everything committed up to this seq was returned, except late commits.
    position: Seq,
    /// Events that were returned above `decided` and may still be pending.
    known: HashSet<Seq>,
    /// Nothing up to this seq can be committed late.
    decided: Seq,
    deciding: Deciding,
    /// Every event that existed when the reader was opened has been returned.
    caught_up: bool,
}

impl MongoReader {
    pub(super) fn new(connection: Arc<Connection>, held: &[HeldLane]) -> Self {
        let mut low_marks = Box::new([0; 256]);
        for held in held {
            low_marks[usize::from(held.lane)] = held.low_mark;
        }
        let lowest = held.iter().map(|held| held.low_mark).min().unwrap_or(0);
        Self {
            connection,
            lanes: held.iter().map(|held| i32::from(held.lane)).collect(),
            low_marks,
            position: lowest,
            known: HashSet::new(),
            decided: lowest,
            deciding: Deciding::default(),
            caught_up: false,
        }
    }

    async fn look(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        let connection = self.connection.clone();
        let at = connection.collections().await?;
        let mut session = connection
            .uncounted(at.client.start_session().snapshot(true))
            .await?;
        let late = self.late(&connection, at, &mut session, limit).await?;
        let (filter, came_late) = if late.is_empty() {
            let above = doc! { "$gt": timestamp(self.position) };
            (self.pending(above), false)
        } else {
            let these = doc! { "$in": timestamps(late) };
            (self.pending(these), true)
        };
        let (mut page, last) = self.read(&connection, at, &mut session, filter, limit).await?;
        let Some(seen) = session.snapshot_time().map(seq) else {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "MongoDB's answer came without its snapshot: version 6.0 or newer is needed",
            ));
        };
        if came_late {
            // Events above the position wait until no late event is left, because they may have the same keys.
            page.more = true;
        } else {
            self.position = last.unwrap_or(self.position);
            let read_to = if page.more { self.position } else { seen };
            self.decide(&connection, at, seen, read_to).await?;
            self.caught_up |= !page.more;
        }
        page.decided = self.decided;
        page.reached = if self.caught_up { Seq::MAX } else { self.position };
        Ok(page)
    }

    /// Events up to the position that were committed after it was passed: the lowest ones, at most a page.
    async fn late(
        &mut self,
        connection: &Connection,
        at: &Collections,
        session: &mut ClientSession,
        limit: PageLimit,
    ) -> Result<Vec<Seq>, StoreError> {
        if self.position <= self.decided {
            return Ok(Vec::new());
        }
        let range = doc! { "$gt": timestamp(self.decided), "$lte": timestamp(self.position) };
        // At most this many of them are known, so the others are late.
        let most = self.known.len().saturating_add(limit.events);
        let collection = raw(&at.events);
        let find = collection
            .find(self.pending(range))
            .projection(doc! { "_id": 0, "seq": 1 })
            .sort(doc! { "seq": 1 })
            .hint(Hint::Name("pending".into()))
            // The client's own read concern would override the session's.
            .read_concern(ReadConcern::snapshot())
            .limit(i64::try_from(most).unwrap_or(i64::MAX))
            .batch_size(u32::try_from(most).unwrap_or(u32::MAX));
        let (known, cut) = (&self.known, most);
        let (late, still_known, whole) = connection
            .run(async {
                let mut cursor = find.session(&mut *session).await?;
                let (mut late, mut still_known, mut count) = (Vec::new(), HashSet::new(), 0);
                while cursor.advance(session).await? {
                    count += 1;
                    let seq = seq_of(cursor.current());
                    if known.contains(&seq) {
                        still_known.insert(seq);
                    } else if late.len() < limit.events {
                        late.push(seq);
                    }
                }
                Ok((late, still_known, count < cut))
            })
            .await?;
        if whole {
            // The other ones were settled.
            self.known = still_known;
        }
        Ok(late)
    }

    fn pending(&self, seq: Document) -> Document {
        doc! { "status": "pending", "seq": seq, "lane": { "$in": &self.lanes } }
    }

    /// Reads events within the limits. Returns the last seq read. The server sends at most 16 MB at once, whatever
    /// the size of the documents.
    async fn read(
        &mut self,
        connection: &Connection,
        at: &Collections,
        session: &mut ClientSession,
        filter: Document,
        limit: PageLimit,
    ) -> Result<(Page, Option<Seq>), StoreError> {
        let events = limit.events.max(1);
        let collection = raw(&at.events);
        let find = collection
            .find(filter)
            .sort(doc! { "seq": 1 })
            .hint(Hint::Name("pending".into()))
            // The client's own read concern would override the session's.
            .read_concern(ReadConcern::snapshot())
            .limit(i64::try_from(events).unwrap_or(i64::MAX))
            .batch_size(u32::try_from(events).unwrap_or(u32::MAX));
        connection
            .run(async {
                let mut cursor: SessionCursor<RawDocumentBuf> = find.session(&mut *session).await?;
                let (mut page, mut last) = (Page::default(), None);
                let (mut count, mut bytes) = (0, 0);
                while cursor.advance(session).await? {
                    let document = cursor.current();
                    let size = fetched_bytes(document, limit);
                    if count > 0 && bytes + size > limit.bytes {
                        page.more = true;
                        break;
                    }
                    bytes += size;
                    count += 1;
                    last = Some(seq_of(document));
                    match event(document, limit) {
                        Ok(event) if self.is_new(event.seq, event.lane) => page.events.push(event),
                        Err(row) if self.is_new(row.seq, row.lane) => page.unreadable.push(row),
                        _ => {}
                    }
                }
                page.more |= count == events;
                Ok((page, last))
            })
            .await
    }

    fn is_new(&mut self, seq: Seq, lane: Lane) -> bool {
        if seq > self.decided {
            self.known.insert(seq);
        }
        seq > self.low_marks[usize::from(lane)]
    }

    /// Called when everything visible at `seen` was returned up to `read_to`.
    async fn decide(
        &mut self,
        connection: &Connection,
        at: &Collections,
        seen: Seq,
        read_to: Seq,
    ) -> Result<(), StoreError> {
        let decided = self.deciding.decided(connection, at, seen, self.position).await?;
        let decided = decided.min(read_to);
        if decided > self.decided {
            self.decided = decided;
            self.position = self.position.max(decided);
            self.known.retain(|&seq| seq > decided);
        }
        Ok(())
    }
}

#[async_trait]
impl Reader for MongoReader {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        if self.lanes.is_empty() {
            return Ok(Page {
                decided: self.decided,
                reached: Seq::MAX,
                ..Page::default()
            });
        }
        self.look(limit).await
    }
}

fn raw(events: &Collection<Document>) -> Collection<RawDocumentBuf> {
    events.clone_with_type()
}
