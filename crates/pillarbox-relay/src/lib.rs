//! The engine that delivers committed events from a store to a sink.
//!
//! ```text
//!  application                    relay                                          after
//!  enqueue ── commit ──▶ discover ▶ check ▶ publish ▶ settle
//!                                     │        │ retry / park
//!                                     └────────┴─▶ dead letter
//! ```
//!
//! Read it in that order:
//!
//! - [`store`]: where events are stored, and the contract between a database and the engine
//! - [`sink`]: where events go, and the contract between a sink and the engine
//! - [`check`]: what an event must pass before it is published
//! - [`route`]: chooses the sink
//! - [`verdict`]: decides what the kind of an error means
//! - [`retry`]: how long a failing event waits
//! - [`event_log`]: what became of events: history and streams
//! - [`dead`]: events that will not be delivered, and what people can do about them
//! - [`notice`]: how people are notified of them
//! - [`reprocess`]: dead letters that are sent again on a schedule
//! - [`pressure`]: tells producers how many events are pending
//! - [`health`]: what is wrong with a relay and its outbox
//! - [`scale`]: how many relays an outbox needs
//! - [`log`]: log lines about single events
//! - [`metrics`]: figures for Prometheus
//! - [`trace`]: spans for OpenTelemetry
//! - [`layout`]: what the columns of a table mean that a team already has
//! - [`adoption`]: taking over such a table
//! - [`catalog`]: which kinds of events there are
//! - [`engine`]: the pipeline itself
//! - [`relay`]: the engine and the background tasks
//!
//! Stores and sinks don't know each other: [`driver`] lists them all, and [`connect`] opens them.

pub mod adoption;
pub mod audit;
pub mod catalog;
pub mod check;
pub mod connect;
pub mod dead;
pub mod driver;
pub mod engine;
pub mod envelope;
pub mod event;
pub mod event_log;
pub mod health;
pub mod http_client;
pub mod layout;
pub mod log;
pub mod metrics;
pub mod notice;
pub mod pressure;
pub mod relay;
pub mod reprocess;
pub mod retry;
pub mod route;
pub mod scale;
pub mod settlement;
pub mod signature;
pub mod sink;
pub mod store;
pub mod tls;
pub mod trace;
pub mod verdict;

pub use event::{Lane, Seq, StoredEvent};
pub use relay::{Handle, Options, Relay};
pub use settlement::Settlement;
pub use sink::Sink;
pub use store::Store;
