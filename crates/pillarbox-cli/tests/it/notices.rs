//! Notices about dead letters, and dead letters that are sent again on a schedule: the real binary on
//! PostgreSQL and SQLite.

mod causes;
mod harness;
mod reprocess;
mod webhook;
