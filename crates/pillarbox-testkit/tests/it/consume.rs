//! What consumers promise, on real brokers and databases: every event has its effect once, in order per key.

mod harness;
mod killed;
