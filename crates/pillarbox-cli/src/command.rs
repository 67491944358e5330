//! The commands, one file each.

pub(crate) mod adopt;
#[cfg(feature = "bench")]
pub(crate) mod bench;
#[cfg(not(feature = "bench"))]
#[path = "command/bench_missing.rs"]
pub(crate) mod bench;
pub(crate) mod catalog;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod dead;
pub(crate) mod enqueue;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod migrate;
pub(crate) mod openapi;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod streams;
pub(crate) mod tail;
mod time;
pub(crate) mod token;
