//! The promises of consumers, on real brokers and databases: every event has its effect once, in order per
//! key.

mod dead_letters;
mod deaths;
mod harness;
mod inbox;
mod instances;
mod jetstream;
mod killed;
mod outages;
mod renewals;
mod stores;
mod storm;
mod unreadable;
