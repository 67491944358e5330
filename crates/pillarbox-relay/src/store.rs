//! Where events lie, and what a database owes the engine.

pub mod admin;
pub mod error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod headers;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
mod limits;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod trouble;

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

pub use self::admin::Admin;
pub use self::error::{StoreError, StoreErrorKind};
pub use self::trouble::{Trouble, TroubleKind};
use crate::{
    event::{Lane, Seq, StoredEvent, Unreadable},
    settlement::Settlement,
};

/// One relay process, from its start to its end. A restarted relay is another one.
pub type RelayId = Uuid;

/// A lane as a relay holds it. The epoch grows with every taking, so it alone tells whether the lane is still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLane {
    pub lane: Lane,
    pub epoch: i64,
    /// Everything up to here in this lane is published, dead or in the side table, and no open transaction can still
    /// add below it.
    pub low_mark: Seq,
}

/// What a heartbeat tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// Relays alive, this one among them.
    pub relays: u16,
    /// This relay's place among them, from 0, the same for all who ask.
    pub rank: u16,
    /// The lanes that were renewed. What is missing was lost.
    pub held: Vec<Lane>,
}

/// How much to read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    pub events: usize,
    /// Of payloads, headers and texts. A page has at least one event, however large.
    pub bytes: usize,
    /// A larger payload is not read at all: the row is unreadable. Headers and texts have fixed limits.
    pub payload_bytes_max: usize,
}

/// Some events, in the order of their seq.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub events: Vec<StoredEvent>,
    pub unreadable: Vec<Unreadable>,
    /// Every event of the reader's lanes up to this seq has been returned by now, or was settled before; and no
    /// transaction still open can add one below it.
    pub decided: Seq,
    /// Every event of the reader's lanes with a seq up to this one that was committed before the reader was opened has been
    /// returned by now, or was settled before. `Seq::MAX` once all have been. Until then an event of the side table with a
    /// higher seq may have an unread predecessor of its key.
    pub reached: Seq,
    /// There is more to read at once, without waiting.
    pub more: bool,
}

/// Events of the side table that may be tried now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Due {
    /// Grouped by key, in the order of their seq within it: delayed ones whose time has come, and the failing one whose
    /// time has come with those held behind it (some of them, where there are many).
    pub events: Vec<DueEvent>,
    pub unreadable: Vec<Unreadable>,
    /// When the next one will be due, when there is one.
    pub next: Option<Duration>,
    /// More are due behind this place. `None`: these were the last.
    pub more_after: Option<DuePlace>,
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
impl Due {
    /// Puts the events of each key together, in the order of their seq, where the first of them stood. Stores find them by
    /// their due times, and a key's delayed events have other due times than its failing one.
    fn group_by_key(&mut self) {
        let mut places: HashMap<(Lane, &str), usize> = HashMap::new();
        let mut order: Vec<(usize, Seq)> = Vec::with_capacity(self.events.len());
        for (place, due) in self.events.iter().enumerate() {
            let key = (due.event.lane, due.event.event.key());
            order.push((*places.entry(key).or_insert(place), due.event.seq));
        }
        if !order.is_sorted() {
            let mut events: Vec<_> = order.into_iter().zip(self.events.drain(..)).collect();
            events.sort_by_key(|(place, _)| *place);
            self.events.extend(events.into_iter().map(|(_, due)| due));
        }
    }
}

/// A place in the order in which due events are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DuePlace {
    /// In the store's own unit.
    pub due_at: i64,
    pub seq: Seq,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DueEvent {
    pub event: StoredEvent,
    /// It was delayed by its producer and never tried: it does not hold its key.
    pub delayed: bool,
}

/// What a settlement changed in the side table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Keys (with their lane) that this settlement touched and that have nothing failing or held left.
    pub free: Vec<(Lane, String)>,
}

/// What a store can do beyond the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// `wait` ends early when something was committed.
    pub notify: bool,
    /// Several processes can share it.
    pub shared: bool,
    /// Its readers lock what they return (`claim: rows`): nobody else may open one just to look.
    pub claims: bool,
}

/// A database with an outbox in it.
///
/// **Discovery.** A [`Reader`] returns each committed event of its lanes that was pending when it was opened or was
/// committed later: every one, once, however late its transaction commits, and never one that is not committed. Within a
/// page the order is that of seq; of two events whose transactions were one after the other, the earlier is in the same
/// page before, or in an earlier page. A row that can't be read is returned as unreadable, once.
///
/// **Settling** writes a batch whole or not at all, in one statement when it is plain. It is idempotent: what was
/// published stays published. It refuses ([`StoreErrorKind::Fenced`]) a batch for lanes whose epoch has moved on.
///
/// **Parking.** The side table holds failing, held and delayed events. `due` returns those whose time has come; they stay
/// in it until settled as published or dead, and asking again returns them again. When the last failing or held
/// event of a key leaves, `settle` says that the key is free; while some remain, the first of them is due at once.
///
/// **Deaths.** A dead event leaves the side table, and its key goes on. Where its route blocks, it stays there as long as
/// its letter is open: events of its key before it go out, none behind it does, and the key is not free. With `latest`,
/// only the newest event of that topic behind the dead one stays. The older ones become dead letters that are already
/// discarded.
///
/// **Lanes** are leased by the database's clock. No two relays hold a lane at once; an expired lane can be taken; taking
/// raises the epoch. The low mark given with a heartbeat or a release is what the next holder starts from.
///
/// Cost does not depend on how many events were ever published. Every method may be called again after an error.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    fn capabilities(&self) -> Capabilities;

    /// Is the outbox there and of this version? [`StoreErrorKind::NotMigrated`] otherwise;
    /// [`StoreErrorKind::Misconfigured`] when `migrate` can't help.
    async fn check(&self) -> Result<(), StoreError>;

    /// Says that the relay lives for `ttl` from now on, renews the lanes given (those whose epoch still matches), and
    /// writes down how far they are settled.
    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError>;

    /// Takes up to `count` lanes that nobody holds, or whose lease is over.
    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError>;

    /// Hands lanes back, with their low marks. Lanes no longer held are passed over.
    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError>;

    /// Says that the relay is gone: its lanes are free at once, and it counts no more.
    async fn leave(&self, relay: RelayId) -> Result<(), StoreError>;

    /// A reader of the lanes given, from their low marks on.
    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader>;

    /// Writes down what became of events of the lanes given.
    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError>;

    /// What of the side table may be tried now, behind the place given: up to `limit`.
    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError>;

    /// The keys of these lanes that have failing or held events, as [`pillarbox::lane::key_hash`]es.
    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError>;

    /// What keeps this relay from delivering, for [`Admin::status`] and for people who are told of it. It replaces what the
    /// relay reported before. The first 20 are kept, 500 characters of each text. Does nothing for a relay without a
    /// heartbeat.
    async fn report(&self, _relay: RelayId, _troubles: &[Trouble]) -> Result<(), StoreError> {
        Ok(())
    }

    /// Tells producers that this relay sleeps and wants waking, or no longer does. A hint.
    async fn set_asleep(&self, _asleep: bool) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits for a hint that something was committed, or for `at_most`. It may end early for no reason, and a hint may
    /// be lost.
    async fn wait(&self, at_most: Duration) {
        tokio::time::sleep(at_most).await;
    }

    /// Statements run so far, for measuring.
    fn statements(&self) -> u64;
}

/// Reads events as they are committed. See [`Store`].
#[async_trait]
pub trait Reader: Send {
    /// The next events; none when nothing is new. After an error the reader is of no more use: open another.
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError>;
}
