//! The test tools, tested on the real servers.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod confluent_kafka;
mod consume;
mod nats_py;
mod servers;
