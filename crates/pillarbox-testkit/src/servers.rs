//! Real servers on loopback, each in a private folder that goes away with it.
//!
//! A server that is not installed is announced on stderr and answered with `None`, so that a test on a person's machine
//! can return early; where `CI=true` the same text is a panic. Everything else that goes wrong here is a panic with the
//! end of the server's log: a test can do nothing about it.
//!
//! A server ends with its handle, and also when the test process dies in any other way (see `service`).

mod cache;
mod found;
mod kafka;
mod mongo;
mod nats;
mod pgbouncer;
mod postgres;
mod service;

pub use found::{
    PYTHON, chat_python, faketime, kafka_python, lacking, orders_node, python, skip, webhooks_python,
};
pub use kafka::{Kafka, KafkaOptions};
pub use mongo::{Mongo, MongoOptions};
pub use nats::{Nats, NatsOptions, NatsVersion};
pub use pgbouncer::Pgbouncer;
pub use postgres::{Postgres, PostgresOptions};
pub use service::{free_port, signal};

use tokio::sync::OnceCell;

/// The PostgreSQL this test process shares: started by the first test that asks, stopped when the process ends. Tests
/// keep apart by [`Postgres::database`]; one that stops or pauses its server starts its own with [`Postgres::start`].
pub async fn postgres() -> Option<&'static Postgres> {
    static SHARED: OnceCell<Option<Postgres>> = OnceCell::const_new();
    SHARED
        .get_or_init(|| Postgres::start(PostgresOptions::default()))
        .await
        .as_ref()
}

/// The MongoDB this test process shares, as [`postgres`]. Tests keep apart by [`Mongo::database`].
pub async fn mongo() -> Option<&'static Mongo> {
    static SHARED: OnceCell<Option<Mongo>> = OnceCell::const_new();
    SHARED.get_or_init(Mongo::start).await.as_ref()
}

/// The Kafka this test process shares, as [`postgres`]. Tests keep apart by their topics' names.
pub async fn kafka() -> Option<&'static Kafka> {
    static SHARED: OnceCell<Option<Kafka>> = OnceCell::const_new();
    SHARED.get_or_init(Kafka::start).await.as_ref()
}
