//! The settings of the clients, by their role. [`super::producer`] explains how order is kept.

use std::time::Duration;

use rdkafka::{ClientConfig, config::RDKafkaLogLevel, error::KafkaError};

use super::address::Address;

/// Larger than any broker accepts. The topic decides whether an event is too large.
const MESSAGE_BYTES_MAX: u32 = 256 << 20;
const QUEUE_KBYTES_MAX: u32 = 512 << 10;
/// The initial size of one request to a partition: the brokers' default limit.
pub(super) const BATCH_BYTES: u32 = 1_000_000;

/// The role of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// As many events in one request as fit into `bytes`.
    Batches { bytes: u32 },
    /// One event in a request, so that an answer is about that event. The caller waits for the report before it sends
    /// the next event of that key. So this producer needs no sequence numbers: it starts at once, and a refusal does
    /// not end it.
    OneByOne,
    /// Batches in transactions.
    Transactions,
}

/// The settings that every client of this address has.
pub(super) fn connection(address: &Address, timeout: Duration) -> ClientConfig {
    let mut config = ClientConfig::new();
    address.connect(&mut config);
    let patience = timeout
        .clamp(Duration::from_secs(1), Duration::from_secs(60))
        .as_millis();
    config
        .set("client.id", "pillarbox")
        .set("socket.timeout.ms", patience.to_string())
        .set("socket.connection.setup.timeout.ms", patience.to_string())
        .set("reconnect.backoff.max.ms", "1000")
        .set("socket.keepalive.enable", "true")
        .set("enable.metrics.push", "false")
        .set_log_level(RDKafkaLogLevel::Warning);
    config
}

pub(super) fn producer(address: &Address, role: Role, timeout: Duration) -> ClientConfig {
    let mut config = connection(address, timeout);
    let patience = timeout
        .clamp(Duration::from_secs(1), Duration::from_secs(900))
        .as_millis();
    config
        .set("acks", "all")
        .set("request.timeout.ms", patience.to_string())
        .set("retry.backoff.max.ms", "500")
        // Java's clients choose partitions the same way. Consumers that join topics of both find a key in the same one.
        .set("partitioner", "murmur2_random")
        .set("compression.type", address.compression.name())
        .set("linger.ms", address.linger_ms.to_string())
        .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
        .set(
            "queue.buffering.max.messages",
            address.queue_events_max.to_string(),
        )
        .set("queue.buffering.max.kbytes", QUEUE_KBYTES_MAX.to_string())
        // A missing topic is reported before our own timeout.
        .set("topic.metadata.propagation.max.ms", "1000");
    match role {
        Role::Batches { bytes } => config.set("batch.size", bytes.to_string()),
        Role::OneByOne => {
            return config
                .set("batch.num.messages", "1")
                .set("linger.ms", "0")
                .set("message.timeout.ms", "0")
                .clone();
        }
        Role::Transactions => config.set("batch.size", BATCH_BYTES.to_string()),
    };
    config.set("enable.idempotence", "true");
    match &address.transactional_id {
        Some(id) if role == Role::Transactions => {
            // If nobody ends a transaction, readers of its topics wait for this long.
            let transaction = (timeout * 2)
                .clamp(Duration::from_secs(10), Duration::from_secs(600))
                .as_millis();
            config
                .set("transactional.id", id)
                .set("transaction.timeout.ms", transaction.to_string())
                .set("message.timeout.ms", transaction.to_string());
        }
        _ => {
            config
                .set("enable.gapless.guarantee", "true")
                .set("message.timeout.ms", "0");
        }
    }
    config
}

/// An error of the client that names a setting also shows its value, which may be a secret.
pub(super) fn plain(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, what, setting, _) => format!("{what} ({setting})"),
        other => other.to_string(),
    }
}
