//! Real servers on loopback, each in a private folder that is removed with it.
//!
//! If a server is not installed, a line on stderr says so and the result is `None`, so that a test on a
//! developer's machine can return early. With `CI=true` the same text is a panic. Every other failure here is
//! a panic with the end of the server's log, because a test can't do anything about it.
//!
//! A server ends with its handle, and also when the test process dies in any other way (see `service`).

mod cache;
mod found;
mod kafka;
mod mongo;
mod nats;
mod pgbouncer;
mod postgres;
mod prometheus;
mod service;

pub use found::{
    PYTHON, browser, chat_python, faketime, kafka_python, lacking, orders_node, prometheus, python,
    schemathesis_python, skip, webhooks_python,
};
pub use kafka::{Kafka, KafkaOptions};
pub use mongo::{Mongo, MongoOptions};
pub use nats::{Nats, NatsOptions, NatsVersion};
pub use pgbouncer::Pgbouncer;
pub use postgres::{Postgres, PostgresOptions};
pub use prometheus::Prometheus;
pub use service::{free_port, signal};

use tokio::sync::OnceCell;

/// The PostgreSQL that this test process shares. The first test that needs it starts it, and it stops when
/// the process ends. Each test uses its own [`Postgres::database`]. A test that stops or pauses its server
/// starts its own with [`Postgres::start`].
pub async fn postgres() -> Option<&'static Postgres> {
    static SHARED: OnceCell<Option<Postgres>> = OnceCell::const_new();
    SHARED
        .get_or_init(|| Postgres::start(PostgresOptions::default()))
        .await
        .as_ref()
}

/// The MongoDB that this test process shares, as [`postgres`]. Each test uses its own [`Mongo::database`].
pub async fn mongo() -> Option<&'static Mongo> {
    static SHARED: OnceCell<Option<Mongo>> = OnceCell::const_new();
    SHARED.get_or_init(Mongo::start).await.as_ref()
}

/// The Kafka that this test process shares, as [`postgres`]. Tests use different topic names.
pub async fn kafka() -> Option<&'static Kafka> {
    static SHARED: OnceCell<Option<Kafka>> = OnceCell::const_new();
    SHARED.get_or_init(Kafka::start).await.as_ref()
}
