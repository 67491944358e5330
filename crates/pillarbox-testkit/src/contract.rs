//! The suites that define "works": one for stores, one for sinks. Every implementation must pass its suite
//! against the real server.

pub mod sink;
pub mod store;
