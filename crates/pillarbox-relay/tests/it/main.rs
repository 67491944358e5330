//! The engine, its stores and its sinks, on real servers. One binary, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod checks;
mod counters;
mod engine;
mod event_log;
mod logs;
mod memory;
mod mongodb;
mod order;
mod postgres;
mod pressure;
mod registry;
mod simulation;
mod sinks;
mod sqlite;
mod stall;
mod tls;
mod traces;
mod versions;
