//! The real binary, on real servers. One binary, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod campaigns;
mod commands;
mod faults;
mod languages;
mod notices;
mod tables;
