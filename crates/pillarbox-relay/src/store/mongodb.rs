//! MongoDB: the outbox as collections of a replica set, written in the application's own session.
//!
//! [`discover`] finds what was committed, [`settle`] writes down what became of it, [`park`] brings back what waits,
//! [`lanes`] shares the work among relays, [`wake`] wakes them, [`schema`] makes the collections, [`admin`] and [`dead`]
//! answer people. [`connection`] is what they stand on.

mod admin;
mod connection;
mod dead;
mod document;
mod error;
mod field;
mod json;
mod keys;
mod notices;
mod reprocess;
mod schema;
mod transaction;
mod versions;

use std::{sync::Arc, time::Duration};

use self::connection::Connection;
use super::StoreError;
use crate::connect::DatabaseOptions;

/// An outbox in MongoDB 5.0 or newer.
pub struct MongoStore {
    connection: Arc<Connection>,
}

impl MongoStore {
    /// Does not connect yet.
    pub fn open(options: &DatabaseOptions) -> Result<Self, StoreError> {
        Ok(Self {
            connection: Arc::new(Connection::open(options)?),
        })
    }
}

/// A duration as pipelines take it, at most a century.
fn milliseconds(duration: Duration) -> i64 {
    const CENTURY: u128 = 100 * 366 * 86_400 * 1_000;
    i64::try_from(duration.as_millis().min(CENTURY)).unwrap_or(i64::MAX)
}
