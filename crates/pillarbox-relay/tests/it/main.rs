//! The engine, its stores and its sinks, on real servers. One binary, a module for each subject.

mod engine;
mod postgres;
mod simulation;
mod sinks;
mod sqlite;
