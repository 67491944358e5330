//! The names of headers on the wire: the relay writes them, consumers read them.
//!
//! Names are case-insensitive. `docs/CONFIGURATION.md` describes the envelopes they belong to.

/// All headers with an event's fields begin with this. A producer's own header with this prefix is renamed.
pub const PREFIX: &str = "Pillarbox-";
/// The event's id, a UUID.
pub const ID: &str = "Pillarbox-Id";
/// The event's type.
pub const EVENT_TYPE: &str = "Pillarbox-Event-Type";
/// The version of the payload's schema.
pub const SCHEMA_VERSION: &str = "Pillarbox-Schema-Version";
/// The aggregate's type.
pub const AGGREGATE_TYPE: &str = "Pillarbox-Aggregate-Type";
/// The aggregate's id.
pub const AGGREGATE_ID: &str = "Pillarbox-Aggregate-Id";
/// The aggregate's version after the change.
pub const AGGREGATE_VERSION: &str = "Pillarbox-Aggregate-Version";
/// The key whose events are in order.
pub const KEY: &str = "Pillarbox-Key";
/// The event's topic. Only for wires without topics: webhooks.
pub const TOPIC: &str = "Pillarbox-Topic";
/// When the event was written, in RFC 3339.
pub const CREATED_AT: &str = "Pillarbox-Created-At";
/// The project's id.
pub const PROJECT_ID: &str = "Pillarbox-Project-Id";
/// The user's id.
pub const USER_ID: &str = "Pillarbox-User-Id";

/// Headers of a consumer's dead letters begin with this.
pub const DEAD_PREFIX: &str = "Pillarbox-Dead-";
/// Why the event is dead: one word.
pub const DEAD_REASON: &str = "Pillarbox-Dead-Reason";
/// The last error.
pub const DEAD_ERROR: &str = "Pillarbox-Dead-Error";
/// The number of attempts.
pub const DEAD_ATTEMPTS: &str = "Pillarbox-Dead-Attempts";
/// The group whose consumer gave up.
pub const DEAD_GROUP: &str = "Pillarbox-Dead-Group";
/// The topic from which it came.
pub const DEAD_TOPIC: &str = "Pillarbox-Dead-Topic";

/// NATS acts on headers that begin with this.
pub const NATS_PREFIX: &str = "Nats-";
/// JetStream detects duplicates by this header. The relay sets it to the event's id.
pub const NATS_MSG_ID: &str = "Nats-Msg-Id";

/// W3C Trace Context: the span that caused the event.
pub const TRACEPARENT: &str = "traceparent";
/// W3C Trace Context: additional data of tracing systems.
pub const TRACESTATE: &str = "tracestate";
/// The business process that the event belongs to.
pub const CORRELATION_ID: &str = "correlation-id";
/// The id of the event that caused this one.
pub const CAUSATION_ID: &str = "causation-id";

/// The id of the dead event that this one is a copy of.
pub const REPLAY_OF: &str = "replay-of";
/// The format of the body.
pub const CONTENT_TYPE: &str = "content-type";

/// The attributes of a CloudEvent.
pub mod cloudevents {
    /// Before the names of attributes in the headers of a Kafka message.
    pub const KAFKA_PREFIX: &str = "ce_";
    /// Before the names of attributes in the headers of a NATS message.
    pub const NATS_PREFIX: &str = "ce-";
    /// Before the names of attributes in the headers of an HTTP request.
    pub const HTTP_PREFIX: &str = "ce-";
    /// The version of the specification.
    pub const SPEC_VERSION: &str = "specversion";
    /// The event's id.
    pub const ID: &str = "id";
    /// The application that the event comes from.
    pub const SOURCE: &str = "source";
    /// The event's type.
    pub const TYPE: &str = "type";
    /// The aggregate's id.
    pub const SUBJECT: &str = "subject";
    /// When the event was written.
    pub const TIME: &str = "time";
    /// The key by which events keep their order.
    pub const PARTITION_KEY: &str = "partitionkey";
    /// The aggregate's type.
    pub const AGGREGATE_TYPE: &str = "aggregatetype";
    /// The aggregate's version.
    pub const AGGREGATE_VERSION: &str = "aggregateversion";
    /// The version of the payload's schema.
    pub const SCHEMA_VERSION: &str = "schemaversion";
    /// The project.
    pub const PROJECT_ID: &str = "projectid";
    /// The user.
    pub const USER_ID: &str = "userid";
    /// See [`TRACEPARENT`](super::TRACEPARENT).
    pub const TRACEPARENT: &str = "traceparent";
    /// See [`TRACESTATE`](super::TRACESTATE).
    pub const TRACESTATE: &str = "tracestate";
    /// See [`CORRELATION_ID`](super::CORRELATION_ID).
    pub const CORRELATION_ID: &str = "correlationid";
}

/// The headers of Debezium's outbox event router.
pub mod debezium {
    /// The event's id.
    pub const ID: &str = "id";
    /// The event's type.
    pub const EVENT_TYPE: &str = "eventType";
}

/// Whether a header's name begins with this; case-insensitive.
pub fn starts_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
