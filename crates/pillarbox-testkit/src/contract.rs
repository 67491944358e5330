//! The suites that define "works": one for stores, one for sinks. Every implementation passes its suite against the
//! real server.

pub mod sink;
pub mod store;
