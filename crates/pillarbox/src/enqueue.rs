//! Writes events into the application's own open transaction. It uses no other connection to write, and no
//! broker.

mod error;
#[cfg(feature = "log")]
mod log;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel"))]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use self::error::{DatabaseError, EnqueueError};
#[cfg(feature = "mongodb")]
pub(crate) use self::mongodb::in_transaction as mongodb_in_transaction;
#[cfg(feature = "mongodb")]
#[doc(hidden)]
pub use self::mongodb::{Clock as MongodbClock, document as mongodb_document, place as mongodb_place};
use std::sync::Arc;

use jiff::Timestamp;
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel"))]
#[doc(hidden)]
pub use postgres::channel as postgres_channel;

#[cfg(any(
    feature = "postgres",
    feature = "sqlite",
    feature = "tokio-postgres",
    feature = "diesel"
))]
use crate::statement::Statement;
use crate::{check::Limits, event::Event, pressure::Pressure, table::Tables, transaction::Transaction};

/// Writes events into an outbox. The default is the table `outbox_events` and the default limits.
///
/// Make one for each database when the application starts, and keep it. It caches its statements. On MongoDB
/// it also remembers that the outbox exists, which limits apply and how much it wrote. Clones are cheap and
/// share all of that. A new one for each event also works but is slower: on MongoDB it queries the server for
/// all of that each time, and a limit counts only what the relay has seen.
///
/// For a second MongoDB cluster make a second `Outbox`, even if the names are the same.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    shared: Arc<Shared>,
    limits: Limits,
    serialise_keys: bool,
}

/// What all clones share.
#[derive(Debug, Default)]
struct Shared {
    tables: Tables,
    #[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel"))]
    postgres: postgres::Statements,
    #[cfg(feature = "sqlite")]
    sqlite: sqlite::Statements,
    #[cfg(feature = "mongodb")]
    knowledge: mongodb::Knowledge,
}

/// Whether the event was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// It was new and is written.
    New,
    /// An event with this id already exists; nothing was written.
    Duplicate,
}

impl Outbox {
    /// An outbox with these table names.
    pub fn new(tables: Tables, limits: Limits) -> Self {
        #[allow(
            clippy::needless_update,
            reason = "without a database there is no other field"
        )]
        let shared = Shared {
            tables,
            ..Shared::default()
        };
        Self {
            shared: Arc::new(shared),
            limits,
            serialise_keys: false,
        }
    }

    /// Like the default, but its knowledge of MongoDB ages by this clock. For tests.
    #[cfg(feature = "mongodb")]
    #[doc(hidden)]
    pub fn by_mongodb_clock(clock: MongodbClock) -> Self {
        let shared = Shared {
            knowledge: mongodb::Knowledge::by(clock),
            ..Shared::default()
        };
        Self {
            shared: Arc::new(shared),
            ..Self::default()
        }
    }

    /// Sets other limits. They apply to this clone only.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// If two transactions write events of one key, the later one waits until the earlier one ends, so that
    /// the key's order is the order of their commits. Use this only for keys whose writers are not already
    /// serialised by a row that they all update.
    ///
    /// PostgreSQL: an advisory lock on each key until the transaction ends; it costs a round trip. MongoDB:
    /// the later transaction fails with a transient error, and the application retries it, as it must anyway.
    /// SQLite has one writer at a time, so this does nothing. Write all events of several keys in one call:
    /// several calls in one transaction that lock keys in different orders can deadlock, and the database
    /// ends a deadlock with an error.
    pub fn serialise_keys(mut self) -> Self {
        self.serialise_keys = true;
        self
    }

    /// The tables it writes to.
    pub fn tables(&self) -> &Tables {
        &self.shared.tables
    }

    #[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel"))]
    fn postgres(&self, statement: impl FnOnce(&postgres::Statements) -> &Statement) -> &Arc<str> {
        statement(&self.shared.postgres).rendered(|sql| self.tables().render(sql))
    }

    #[cfg(feature = "sqlite")]
    fn sqlite(&self, statement: impl FnOnce(&sqlite::Statements) -> &Statement) -> &Arc<str> {
        statement(&self.shared.sqlite).rendered(|sql| self.tables().render(sql))
    }

    #[cfg(feature = "mongodb")]
    fn knowledge(&self) -> &mongodb::Knowledge {
        &self.shared.knowledge
    }

    /// Whether writers of one key wait for each other: see [`Outbox::serialise_keys`].
    pub fn keys_are_serialised(&self) -> bool {
        self.serialise_keys
    }

    /// Writes one event in `tx`. It is delivered if and only if `tx` commits.
    ///
    /// With the feature `log`, which `postgres` and `sqlite` turn on, each new event is logged at debug as
    /// `outbox_event_enqueued`, without its payload. `tx` may still roll back after that.
    pub async fn enqueue<T: Transaction>(&self, tx: &mut T, event: &Event) -> Result<Enqueued, EnqueueError> {
        let enqueued = self.enqueue_all(tx, std::slice::from_ref(event)).await?;
        Ok(enqueued[0])
    }

    /// Writes many events in the order given: all of them, or none if one is refused. Of two with the same
    /// id, the first is written.
    pub async fn enqueue_all<T: Transaction>(
        &self,
        tx: &mut T,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        #[cfg(feature = "trace")]
        let traced = crate::trace::traced(events, &self.limits);
        #[cfg(feature = "trace")]
        let events = &*traced;
        let now = Timestamp::now();
        for (index, event) in events.iter().enumerate() {
            self.limits
                .check_new(event, now)
                .map_err(|problem| EnqueueError::Refused { index, problem })?;
        }
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let enqueued = tx.insert(self, events).await?;
        assert_eq!(enqueued.len(), events.len(), "one answer for each event");
        #[cfg(feature = "log")]
        log::enqueued(events, &enqueued);
        Ok(enqueued)
    }

    /// The backpressure for events of this topic, to check before the work begins. `None`: no limit is set
    /// for it. This neither waits nor refuses anything.
    pub async fn pressure<T: Transaction>(
        &self,
        tx: &mut T,
        topic: &str,
    ) -> Result<Option<Pressure>, EnqueueError> {
        tx.pressure(self, topic).await
    }
}
