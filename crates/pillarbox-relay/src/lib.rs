//! The engine that carries committed events from a store to a sink.
//!
//! ```text
//!  application                    relay                                          after
//!  enqueue ── commit ──▶ discover ▶ check ▶ publish ▶ settle
//!                                     │        │ retry / park
//!                                     └────────┴─▶ dead letter
//! ```
//!
//! Read it in that order: [`store`] is where events lie and what a database owes the engine; [`sink`] is where they go
//! and what a broker owes it; [`check`] says what an event must fulfil to go there; [`route`] chooses the sink;
//! [`verdict`] is the one place that decides what an error means; [`retry`] how long a failing event waits; [`dead`] what
//! people do about those that will not be delivered, [`notice`] how they hear of them, [`reprocess`] what is sent again on
//! a schedule; [`pressure`] tells producers how much waits; [`catalog`] tells which kinds of events there are; [`engine`] moves
//! events along; a [`relay`] is the engine and everything beside it. No store names a sink and no sink names a store: [`driver`] lists them all, and [`connect`] opens them.

pub mod catalog;
pub mod check;
pub mod connect;
pub mod dead;
pub mod driver;
pub mod engine;
pub mod envelope;
pub mod event;
pub mod http_client;
pub mod notice;
pub mod pressure;
pub mod relay;
pub mod reprocess;
pub mod retry;
pub mod route;
pub mod settlement;
pub mod sink;
pub mod store;
pub mod verdict;

pub use event::{Lane, Seq, StoredEvent};
pub use relay::{Handle, Options, Relay};
pub use settlement::Settlement;
pub use sink::Sink;
pub use store::Store;
