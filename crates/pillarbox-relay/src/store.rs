//! The contract between the engine and a database.

pub mod admin;
pub mod error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod headers;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
mod limits;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
mod log_search;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod records;
pub mod sample;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod sql;
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
pub use self::sample::Sample;
pub use self::trouble::{Trouble, TroubleKind};
use crate::{
    event::{Lane, Seq, StoredEvent, Unreadable},
    settlement::Settlement,
};

/// One relay process, from its start to its end. A restarted relay is a new one.
pub type RelayId = Uuid;

/// A lane that a relay holds. Every take raises the epoch, so the epoch alone shows whether the lane is still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLane {
    pub lane: Lane,
    pub epoch: i64,
    /// Every event of this lane up to this seq is published, dead or in the side table, and no open transaction can
    /// add one below it.
    pub low_mark: Seq,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// Relays that are alive, including this one.
    pub relays: u16,
    /// This relay's rank among them, from 0. Every relay sees the same order.
    pub rank: u16,
    /// The lanes that were renewed. A lane that is missing here was lost.
    pub held: Vec<Lane>,
}

/// How much to read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    pub events: usize,
    /// Limit for payloads, headers and texts together. A page has at least one event, however large.
    pub bytes: usize,
    /// A larger payload is not read, and its row counts as unreadable. Headers and texts have fixed limits.
    pub payload_bytes_max: usize,
}

/// Some events, in the order of their seq.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub events: Vec<StoredEvent>,
    pub unreadable: Vec<Unreadable>,
    /// Every event of the reader's lanes up to this seq has been returned, or was settled before. No open
    /// transaction can add one below it.
    pub decided: Seq,
    /// Every event of the reader's lanes up to this seq that was committed before the reader was opened has been
    /// returned, or was settled before. `Seq::MAX` once this holds for all of them. Until then, an event of the
    /// side table with a higher seq may have an unread predecessor of its key.
    pub reached: Seq,
    /// There is more to read now, without waiting.
    pub more: bool,
}

/// Events of the side table that may be tried now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Due {
    /// Grouped by key, in the order of their seq within it. They are delayed events that are due, and failing
    /// events that are due together with the events held behind them (only some of those if there are many).
    pub events: Vec<DueEvent>,
    pub unreadable: Vec<Unreadable>,
    /// The time until the next one is due, if there is one.
    pub next: Option<Duration>,
    /// More events are due after this place. `None`: these were the last.
    pub more_after: Option<DuePlace>,
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
impl Due {
    /// Groups the events by key, in the order of their seq. A group stands where its first event stood. Stores
    /// return events by due time, and a key's delayed events are due at other times than its failing one.
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
    /// Its producer delayed it and it was never tried. It does not block its key.
    pub delayed: bool,
}

/// The changes that a settlement made in the side table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Keys (with their lane) that this settlement touched and that have no failing, held or blocking dead event
    /// left.
    pub free: Vec<(Lane, String)>,
}

/// A database with an outbox in it.
///
/// **Discovery.** A [`Reader`] returns each committed event of its lanes that was pending when the reader was
/// opened, or was committed later. It returns every event once, however late its transaction commits, and never an
/// uncommitted one. A page is in the order of seq. If one transaction ended before another began, its events come
/// first: earlier in the same page, or in an earlier page. A row that can't be read is returned once, as
/// unreadable.
///
/// **Settling** writes a batch completely or not at all, in one statement in the common case. It is idempotent: a
/// published event stays published. It refuses ([`StoreErrorKind::Fenced`]) a batch for lanes whose epoch has
/// changed.
///
/// **Parking.** The side table contains failing, held and delayed events. `due` returns those that are due. They
/// stay in the table until they are settled as published or dead, and the next call returns them again. When the
/// last failing, held or blocking dead event of a key leaves, `settle` reports the key as free. While some remain,
/// the first of them is due at once, unless it is dead.
///
/// **Deaths.** A dead event leaves the side table, and its key continues. If its route blocks the key, the event
/// stays in the side table while its letter is open: earlier events of the key are delivered, later ones are not,
/// and the key is not free. With `latest`, only the newest event of that topic after the dead one stays. The older
/// ones become dead letters that are already discarded.
///
/// **Lanes** are leased by the database's clock. Two relays never hold one lane at the same time. A lane whose
/// lease has expired can be taken, and taking it raises the epoch. The next holder starts from the low mark that
/// the last heartbeat or release has written.
///
/// The cost does not depend on how many events were ever published. Every method may be called again after an
/// error.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Checks that the outbox exists and has this version. Fails with [`StoreErrorKind::NotMigrated`] otherwise, or
    /// with [`StoreErrorKind::Misconfigured`] if `migrate` can't help.
    async fn check(&self) -> Result<(), StoreError>;

    /// Records that the relay is alive for `ttl` from now, renews the given lanes (those whose epoch still
    /// matches), and writes their low marks.
    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError>;

    /// Takes up to `count` lanes that no relay holds or whose lease has expired.
    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError>;

    /// Releases lanes and writes their low marks. Skips lanes that are no longer held.
    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError>;

    /// Removes the relay: its lanes are free at once, and it is no longer counted.
    async fn leave(&self, relay: RelayId) -> Result<(), StoreError>;

    /// A reader of the given lanes, starting at their low marks.
    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader>;

    /// Records the results of events of the given lanes.
    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError>;

    /// Up to `limit` events of the side table that may be tried now, after the given place.
    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError>;

    /// The keys of these lanes that have failing, held or blocking dead events, as
    /// [`pillarbox::lane::key_hash`]es.
    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(Lane, u64)>, StoreError>;

    /// Reports what keeps this relay from delivering, for [`Admin::status`] and for notices. It replaces the
    /// relay's last report. The first 20 troubles are kept, with 500 characters of each text. Does nothing for a
    /// relay without a heartbeat.
    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError>;

    /// The reports of the relays that are alive, relay by relay.
    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError>;

    /// Whether its readers lock the events they return (`claim: rows`). Such a reader must not be opened just to
    /// look.
    fn claims_rows(&self) -> bool {
        false
    }

    /// `None`: this store can't wake a sleeping relay, so the relay polls, at the latest after
    /// `poll_interval_max`.
    fn waker(&self) -> Option<&dyn Waker> {
        None
    }

    /// Statements run so far, for measurements.
    fn statements(&self) -> u64;
}

/// Wakes a relay when something is committed. This is only a hint: the relay also polls.
#[async_trait]
pub trait Waker: Send + Sync {
    /// Waits until something may have been committed, at most for `at_most`. It may return early for no reason.
    async fn wait(&self, at_most: Duration);

    /// Tells producers whether this relay sleeps and must be woken. Only for databases in which producers wake
    /// relays.
    async fn set_asleep(&self, _asleep: bool) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Returns events as they are committed. See [`Store`].
#[async_trait]
pub trait Reader: Send {
    /// The next events; none if there is nothing new. After an error the reader can't be used again: open a new
    /// one.
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError>;
}
