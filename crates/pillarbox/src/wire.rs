//! The names of headers on the wire: the relay writes them, consumers read them.
//!
//! Names don't differ by their case. `docs/CONFIGURATION.md` describes the envelopes they belong to.

/// All headers that carry an event's fields begin with this. A producer's own header that does gets another name.
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
/// How often it was tried.
pub const DEAD_ATTEMPTS: &str = "Pillarbox-Dead-Attempts";
/// The group whose consumer gave it up.
pub const DEAD_GROUP: &str = "Pillarbox-Dead-Group";
/// The topic that it came from.
pub const DEAD_TOPIC: &str = "Pillarbox-Dead-Topic";

/// NATS obeys headers that begin with this.
pub const NATS_PREFIX: &str = "Nats-";
/// By which JetStream tells duplicates. The relay puts the event's id there.
pub const NATS_MSG_ID: &str = "Nats-Msg-Id";

/// W3C Trace Context: the span that caused the event.
pub const TRACEPARENT: &str = "traceparent";
/// W3C Trace Context: what tracing systems add.
pub const TRACESTATE: &str = "tracestate";
/// The business process that the event belongs to.
pub const CORRELATION_ID: &str = "correlation-id";
/// The id of the event that caused this one.
pub const CAUSATION_ID: &str = "causation-id";

/// Whether a header's name begins with this, whatever their case.
pub fn starts_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
