//! The application's own open transaction, of any supported library.

pub(crate) mod sealed {
    use crate::{
        enqueue::{EnqueueError, Enqueued, Outbox},
        event::Event,
        pressure::Pressure,
    };
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
    use crate::{
        event::EventId,
        inbox::{Inbox, InboxError, Seen, Sighting},
    };

    pub trait Write: Send {
        /// The events were checked, and there is at least one. Returns one answer for each.
        fn insert(
            &mut self,
            outbox: &Outbox,
            events: &[Event],
        ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send;

        fn pressure(
            &mut self,
            outbox: &Outbox,
            topic: &str,
        ) -> impl Future<Output = Result<Option<Pressure>, EnqueueError>> + Send;
    }

    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
    pub trait Remember: Write {
        fn remember(
            &mut self,
            inbox: &Inbox,
            sighting: Sighting<'_>,
        ) -> impl Future<Output = Result<Seen, InboxError>> + Send;

        /// Records that the event has ended, if this commits.
        fn ended(
            &mut self,
            inbox: &Inbox,
            group: &str,
            event_id: &EventId,
        ) -> impl Future<Output = Result<(), InboxError>> + Send;
    }
}

/// An open transaction of the application that can carry events: `sqlx::Transaction` of PostgreSQL or SQLite,
/// `tokio_postgres::Transaction`, `diesel_async::AsyncPgConnection` in a transaction,
/// `mongodb::ClientSession`; and `testing::RecordedTransaction` in unit tests.
///
/// Those of sqlx and MongoDB can also write inbox entries: [`inbox::Remember`](crate::inbox).
///
/// It is sealed: only this crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that pillarbox knows",
    note = "turn on the feature for its library (`postgres`, `sqlite`, `tokio-postgres`, `diesel`, `mongodb`) and use the library's version that pillarbox depends on"
)]
pub trait Transaction: sealed::Write {}
