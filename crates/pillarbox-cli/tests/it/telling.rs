//! Who hears of dead letters, and what is sent again without anybody asking: the real binary on PostgreSQL and SQLite.

mod harness;
mod notices;
mod reprocess;
mod webhook;
