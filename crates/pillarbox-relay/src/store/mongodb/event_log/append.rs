//! Appends deliveries, before they are marked as published.
//!
//! The event was delivered, so its entry is true even if the relay dies before the event is marked. The event is then
//! sent again and finds its entry: the index `published` has every event once. So a settlement of deliveries needs no
//! transaction. Entries are copied in parts of limited size, because a settlement names events and not their bytes.
//!
//! Entries of a key keep its order:
//! - The insert is ordered. It ends at the first entry that can't be inserted, so no later entry passes it, also if the
//!   relay dies meanwhile.
//! - Positions are taken before the lanes are checked. So they are lower than those of a relay that takes the lanes over.
//! - If an entry can't be inserted, it and those behind it start again with new positions.

use std::collections::{BTreeSet, HashMap, HashSet};

use mongodb::{
    Cursor,
    bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, doc},
    error::Error,
    options::Hint,
};

use super::{
    super::{
        connection::Connection,
        document::{lane_of, seq, seq_of, timestamp, timestamps},
        error::is_duplicate,
        lanes::{Leases, under},
    },
    entry::{self, copied_fields},
    positions,
};
use crate::{
    event::{Lane, Seq},
    event_log::Position,
    settlement::Settlement,
    store::{HeldLane, StoreError, StoreErrorKind},
};

/// Entries are written in parts of about this size.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// How often a part may start again.
const TRIES_MAX: usize = 8;

/// Who may append.
pub(in super::super) enum Allowed<'a> {
    /// The holder of the events' lanes.
    Lanes(&'a Leases, &'a [HeldLane]),
    /// Any relay: with `claim: rows`, no order is kept beyond a batch.
    Any,
}

/// What the entries of a settlement have besides their events.
pub(super) struct Deliveries<'a> {
    pub(super) relay: Option<&'a str>,
    sinks: HashMap<Seq, &'a str>,
    /// Documents of the side table.
    parked: HashMap<Seq, RawDocumentBuf>,
}

impl<'a> Deliveries<'a> {
    /// Reads the side table only for events that come from there.
    async fn of(connection: &Connection, settlement: &'a Settlement) -> Result<Self, StoreError> {
        let logged: HashSet<Seq> = settlement.logged.iter().copied().collect();
        let parked = settlement.published_parked.iter().map(|parked| parked.seq);
        let parked: Vec<_> = parked.filter(|seq| logged.contains(seq)).map(timestamp).collect();
        let mut found = HashMap::new();
        if !parked.is_empty() {
            let at = connection.collections().await?;
            let side_table = at.parked.clone_with_type::<RawDocumentBuf>();
            let these = side_table
                .find(doc! { "_id": { "$in": parked } })
                .projection(doc! { "failures": 1 });
            for parked in connection.all(these).await? {
                if let Ok(seq) = parked.get_timestamp("_id").map(seq) {
                    found.insert(seq, parked);
                }
            }
        }
        let sinks = settlement.logged_with_sinks();
        Ok(Self {
            relay: settlement.logged_by.relay(),
            sinks: sinks.filter_map(|(seq, sink)| Some((seq, sink?))).collect(),
            parked: found,
        })
    }

    pub(super) fn sink(&self, event: &RawDocument) -> Option<&str> {
        self.sinks.get(&seq_of(event)).copied()
    }

    /// The failed attempts before the delivery.
    pub(super) fn failures(&self, event: &RawDocument) -> Option<RawBsonRef<'_>> {
        let parked = self.parked.get(&seq_of(event))?;
        let failures = parked.get_array("failures").ok()?;
        (!failures.is_empty()).then_some(RawBsonRef::Array(failures))
    }
}

/// Appends those of these events whose result is not final, in the order of their seq. The index `seq` finds them.
pub(in super::super) async fn append_published(
    connection: &Connection,
    allowed: &Allowed<'_>,
    settlement: &Settlement,
) -> Result<(), StoreError> {
    let seqs = &settlement.logged;
    if seqs.is_empty() {
        return Ok(());
    }
    let at = connection.collections().await?;
    let deliveries = Deliveries::of(connection, settlement).await?;
    let open = doc! {
        "seq": { "$in": timestamps(seqs.iter().copied()) }, "status": { "$nin": ["published", "dead"] },
    };
    let copied = [
        doc! { "$match": open },
        doc! { "$sort": { "seq": 1 } },
        doc! { "$project": copied_fields() },
    ];
    let copied = at
        .events
        .aggregate(copied)
        .hint(Hint::Name("seq".into()))
        .with_type::<RawDocumentBuf>();
    let mut copied = connection.run(copied).await?;
    loop {
        let part = connection.uncounted(next_part(&mut copied)).await?;
        if part.is_empty() {
            return Ok(());
        }
        append_part(connection, allowed, part, &deliveries).await?;
    }
}

async fn next_part(events: &mut Cursor<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>, Error> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    while bytes < PART_BYTES && events.advance().await? {
        let event = events.current().to_owned();
        bytes += event.as_bytes().len();
        part.push(event);
    }
    Ok(part)
}

async fn append_part(
    connection: &Connection,
    allowed: &Allowed<'_>,
    mut events: Vec<RawDocumentBuf>,
    deliveries: &Deliveries<'_>,
) -> Result<(), StoreError> {
    for _ in 0..TRIES_MAX {
        if events.is_empty() {
            return Ok(());
        }
        let first = positions::take(connection, events.len()).await?;
        allowed.check(connection, &events).await?;
        if insert(connection, first, &events, deliveries).await? {
            return Ok(());
        }
        // Some events are in the log already, or a reader has made a position void.
        positions::pass_the_last(connection).await?;
        let logged = logged(connection, &events).await?;
        events.retain(|event| !logged.contains(&entry::id(event)));
    }
    Err(StoreError::new(
        StoreErrorKind::Away,
        "readers of the event log made positions void faster than entries could be written: trying again",
    ))
}

/// Inserts entries until one meets another one. Returns whether none did.
async fn insert(
    connection: &Connection,
    first: Position,
    events: &[RawDocumentBuf],
    deliveries: &Deliveries<'_>,
) -> Result<bool, StoreError> {
    let at = connection.collections().await?;
    let entries = (first..)
        .zip(events)
        .map(|(position, event)| entry::of(position, event, deliveries));
    let log = at.log.clone_with_type::<RawDocumentBuf>();
    let insert = log.insert_many(entries).ordered(true);
    connection
        .run(async {
            match insert.await {
                Ok(_) => Ok(true),
                Err(error) if is_duplicate(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await
}

/// The ids of those events that the log has as published.
async fn logged(connection: &Connection, events: &[RawDocumentBuf]) -> Result<HashSet<String>, StoreError> {
    let at = connection.collections().await?;
    let ids: Vec<String> = events.iter().map(|event| entry::id(event)).collect();
    let these = doc! { "event_id": { "$in": ids }, "status": "published" };
    let these = at
        .log
        .find(these)
        .projection(doc! { "_id": 0, "event_id": 1 })
        .hint(Hint::Name("published".into()));
    let found: Vec<Document> = connection.all(these).await?;
    let id = |found: Document| found.get_str("event_id").ok().map(str::to_owned);
    Ok(found.into_iter().filter_map(id).collect())
}

impl Allowed<'_> {
    async fn check(&self, connection: &Connection, events: &[RawDocumentBuf]) -> Result<(), StoreError> {
        let (leases, held) = match self {
            Self::Any => return Ok(()),
            Self::Lanes(leases, held) => (leases, held),
        };
        if leases.cover(held) {
            return Ok(());
        }
        let touched: BTreeSet<Lane> = events.iter().map(|event| lane_of(event)).collect();
        let asked: Vec<HeldLane> = held
            .iter()
            .filter(|held| touched.contains(&held.lane))
            .copied()
            .collect();
        let at = connection.collections().await?;
        let still = connection.run(at.lanes.count_documents(under(&asked))).await?;
        if still < touched.len() as u64 {
            return Err(StoreError::fenced());
        }
        Ok(())
    }
}
