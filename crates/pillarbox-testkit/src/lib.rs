//! The basis of Pillarbox's tests: real servers started in private folders, a proxy that makes the network
//! fail, the contract suites that every store and sink must pass, and the ledger that checks whether anything
//! was lost, seen twice or out of order.

pub mod authority;
pub mod cloudevents;
pub mod collector_stub;
pub mod confluent_kafka;
pub mod consumer;
pub mod contract;
pub mod fuzz;
pub mod gate;
pub mod kafka;
pub mod ledger;
pub mod memory;
pub mod nats_py;
pub mod proxy;
pub mod schema_registry_stub;
pub mod servers;
pub mod storm;
pub mod tls_server;
pub mod torture;
pub mod wait;
pub mod webhooks;
