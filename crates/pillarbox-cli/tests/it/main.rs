//! The real binary, on real servers. One binary, a module for each subject.

mod commands;
mod faults;
