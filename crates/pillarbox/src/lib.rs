//! Write an event in the transaction that causes it; Pillarbox delivers it after the commit.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")]
//! # async fn place(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::{Event, Outbox};
//!
//! let outbox = Outbox::default(); // make it once, and keep it
//!
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into orders (id, total) values ('o-1', 990)").execute(&mut *tx).await?;
//! let event = Event::to("shop.order.placed")
//!     .event_type("OrderPlaced")
//!     .aggregate("order", "o-1")
//!     .json(&serde_json::json!({"total": 990}))?;
//! outbox.enqueue(&mut tx, &event).await?;
//! tx.commit().await?; // both, or neither
//! # Ok(()) }
//! ```
//!
//! The modules follow an event: [`event`] is its content, [`check`] refuses invalid ones, [`enqueue`] writes
//! it into the application's own transaction, [`pressure`] limits how many may be pending, [`lane`] computes
//! the lane of its key, [`table`] has the names of the tables. On the other side [`inbox`] remembers what was
//! processed, and `consume` (with the features `nats` and `kafka`) calls a handler, once per event, in order
//! per key. `follow` reads the event log from a position. Unit tests of an application need no database: see `testing`.

#![warn(missing_docs)]

#[cfg(any(feature = "consume", feature = "follow"))]
mod backoff;
pub mod check;
#[cfg(all(
    feature = "consume",
    any(feature = "postgres", feature = "sqlite", feature = "mongodb")
))]
pub mod consume;
pub mod enqueue;
pub mod event;
#[cfg(feature = "follow")]
pub mod follow;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub mod inbox;
pub mod lane;
pub mod pressure;
#[cfg(any(
    feature = "postgres",
    feature = "sqlite",
    feature = "tokio-postgres",
    feature = "diesel"
))]
mod statement;
pub mod table;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "trace")]
pub mod trace;
mod transaction;
pub mod wire;

pub use check::{CheckError, Limits};
pub use enqueue::{EnqueueError, Enqueued, Outbox};
pub use event::{Event, EventId, RetryOverrides};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))]
pub use inbox::{Inbox, Seen};
pub use transaction::Transaction;

#[cfg(all(feature = "consume", not(any(feature = "nats", feature = "kafka"))))]
compile_error!("`consume` alone consumes nothing: use the feature `nats` or `kafka`, which bring it along");
#[cfg(all(
    any(feature = "nats", feature = "kafka"),
    not(any(feature = "postgres", feature = "sqlite", feature = "mongodb"))
))]
compile_error!(
    "a consumer needs a database for its inbox: add the feature `postgres`, `sqlite` or `mongodb`"
);
