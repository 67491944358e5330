//! The settings of the clients, by what they are for. What order rests on is said in [`super::producer`].

use std::time::Duration;

use rdkafka::{ClientConfig, config::RDKafkaLogLevel, error::KafkaError};

use super::address::Address;

/// Larger than any broker takes: whether an event is too large is the topic's to say.
const MESSAGE_BYTES_MAX: u32 = 256 << 20;
const QUEUE_KBYTES_MAX: u32 = 512 << 10;
/// Of one request to a partition, to begin with: as much as brokers take unless they are told otherwise.
pub(super) const BATCH_BYTES: u32 = 1_000_000;

/// What a producer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// As many events in one request as `bytes` hold.
    Batches { bytes: u32 },
    /// One event in a request, so that an answer is that event's own. Whoever gives it an event waits for the report before
    /// the next of that key, so it needs no sequence numbers: it starts at once, and a refusal does not end it.
    OneByOne,
    /// Batches in transactions.
    Transactions,
}

/// What every client of this address has in common.
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
        // As Java's clients choose a partition: consumers that join topics of both find a key in the same one.
        .set("partitioner", "murmur2_random")
        .set("compression.type", address.compression.name())
        .set("linger.ms", address.linger_ms.to_string())
        .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
        .set(
            "queue.buffering.max.messages",
            address.queue_events_max.to_string(),
        )
        .set("queue.buffering.max.kbytes", QUEUE_KBYTES_MAX.to_string())
        // A topic that a broker forgot is told before our own patience ends.
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
            // A transaction that nobody ends keeps its topics' readers waiting for so long.
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

/// An error of the client that names a setting shows its value as well, which may be a secret.
pub(super) fn plain(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, what, setting, _) => format!("{what} ({setting})"),
        other => other.to_string(),
    }
}
