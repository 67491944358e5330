//! MongoDB: the outbox as collections of a replica set, written in the application's own session.
//!
//! [`discover`] finds what was committed, [`settle`] writes down what became of it, [`park`] brings back what waits,
//! [`lanes`] shares the work among relays, [`wake`] wakes them, [`schema`] makes the collections, [`admin`] and [`dead`]
//! answer people. [`connection`] is what they stand on.

mod connection;
mod document;
mod error;
mod json;
mod keys;
mod schema;
mod transaction;

use std::sync::Arc;

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
