//! The meaning of Kafka's answers.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;

use super::reports::Problem;
use crate::sink::{SinkError, SinkErrorKind as Kind};

/// What a broker's refusal says about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is about this event.
    Own(SinkError),
    /// A request with several events was refused, and this event was in it. It is at fault only if it is refused alone.
    Shared(SinkError),
    /// It is about the whole topic. Sending more to the topic is useless for now.
    Topic(SinkError),
}

impl Refusal {
    pub(super) fn into_error(self) -> SinkError {
        match self {
            Self::Own(error) | Self::Shared(error) | Self::Topic(error) => error,
        }
    }
}

/// The meaning of an event's error. `bytes`: the size of its key, headers and payload.
pub(super) fn refusal(code: Code, topic: &str, bytes: usize) -> Refusal {
    use Refusal::{Own, Shared, Topic};
    let says = || format!("Kafka refused an event for {topic}: {code}");
    match code {
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => {
            Shared(too_large(topic, bytes))
        }
        Code::InvalidRecord
        | Code::InvalidDifferentRecord
        | Code::InvalidMessage
        | Code::InvalidTimestamp
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat => Shared(SinkError::new(Kind::Refused, says())),
        Code::UnknownTopic
        | Code::UnknownTopicOrPartition
        | Code::UnknownPartition
        | Code::UnknownTopicId => Topic(missing_topic(topic)),
        Code::TopicAuthorizationFailed => Topic(not_granted(topic)),
        Code::InvalidTopic => Own(SinkError::new(
            Kind::Invalid,
            format!("{topic:?} is not a Kafka topic: the broker refuses the name"),
        )),
        other => Own(other_error(other, &says())),
    }
}

/// The meaning of every other code. Faults of the network and the brokers are not charged to the event. An unknown
/// code is `Busy`: retried and charged.
fn other_error(code: Code, says: &str) -> SinkError {
    match code {
        Code::NotEnoughReplicas
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::KafkaStorageError
        | Code::BrokerNotAvailable
        | Code::ReplicaNotAvailable
        | Code::CoordinatorNotAvailable
        | Code::CoordinatorLoadInProgress
        | Code::NotCoordinator
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::PurgeQueue => SinkError::new(Kind::Unavailable, says),
        // From the client itself: it drops a broker, a connection, or itself.
        Code::BrokerDestroy
        | Code::DestroyBroker
        | Code::InProgress
        | Code::NotEnoughReplicasAfterAppend
        | Code::OutOfOrderSequenceNumber
        | Code::DuplicateSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        // The coordinator restarted or was replaced, and the state of the transaction has changed.
        | Code::InvalidTransactionalState
        | Code::InvalidProducerIdMapping
        | Code::ConcurrentTransactions
        | Code::TransactionCoordinatorFenced
        | Code::Fatal
        | Code::GaplessGuarantee => SinkError::new(Kind::Unavailable, says).in_doubt(),
        Code::MessageTimedOut
        | Code::OperationTimedOut
        | Code::RequestTimedOut
        | Code::TimedOutQueue
        | Code::PurgeInflight => SinkError::new(Kind::Timeout, says).in_doubt(),
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::NetworkException
        | Code::Resolve
        | Code::SSL => SinkError::new(Kind::Unreachable, says).in_doubt(),
        Code::Authentication | Code::SaslAuthenticationFailed => bad_credentials(),
        Code::ClusterAuthorizationFailed => misconfigured(
            "this Kafka user may not write as an idempotent producer. Grant it IdempotentWrite on the cluster, or Write on a \
             topic",
        ),
        Code::TransactionalIdAuthorizationFailed => misconfigured(
            "this Kafka user may not use the transactional id. Grant it Write and Describe on it, or leave `transactions` out",
        ),
        Code::Fenced | Code::ProducerFenced => fenced(),
        // Unknown errors are retried some times instead of rejecting the event at once.
        _ => SinkError::new(Kind::Busy, says).in_doubt(),
    }
}

/// Why a producer ended, for the events that it could not send.
pub(super) fn ended(end: Option<(Code, String)>) -> SinkError {
    let (code, text) = end.unwrap_or((Code::Fatal, "the Kafka client ended".into()));
    let text: String = text.chars().take(400).collect();
    other_error(code, &format!("the Kafka producer ended and is replaced: {text}"))
}

pub(super) fn misconfigured(message: impl Into<String>) -> SinkError {
    SinkError::new(Kind::Misconfigured, message)
}

pub(super) fn missing_topic(topic: &str) -> SinkError {
    SinkError::new(
        Kind::MissingStream,
        format!(
            "there is no Kafka topic {topic}. Create it, or list it under `outbox.topics` and run `pillarbox topics apply`"
        ),
    )
}

/// Not permanent: somebody can grant it while the event waits.
pub(super) fn not_granted(topic: &str) -> SinkError {
    SinkError::new(
        Kind::NotGranted,
        format!("this Kafka user may not write to {topic}. Grant it Write and Describe on the topic"),
    )
}

fn too_large(topic: &str, bytes: usize) -> SinkError {
    SinkError::new(
        Kind::TooLarge,
        format!(
            "the event has {bytes} bytes with its key and headers, more than {topic} accepts (max.message.bytes of the topic, \
             message.max.bytes of the broker)"
        ),
    )
}

pub(super) fn fenced() -> SinkError {
    misconfigured(
        "another producer uses this transactional id now. Give each relay its own, or leave `transactional_id` out",
    )
}

fn bad_credentials() -> SinkError {
    misconfigured("Kafka refuses these credentials. Check user, password and `sasl` in the address")
}

pub(super) fn timed_out(timeout: Duration) -> SinkError {
    SinkError::new(
        Kind::Timeout,
        format!("Kafka did not answer within {} ms", timeout.as_millis()),
    )
}

pub(super) fn no_room(timeout: Duration) -> SinkError {
    SinkError::new(
        Kind::Timeout,
        format!(
            "the Kafka client's queue had no room within {} ms (queue_events_max in the address)",
            timeout.as_millis()
        ),
    )
}

pub(super) fn credentials_refused(problem: &Problem) -> bool {
    matches!(
        problem.code,
        Code::Authentication | Code::SaslAuthenticationFailed
    )
}

/// Why there is no connection.
pub(super) fn cannot_reach(problem: &Problem) -> SinkError {
    let reason = &problem.reason;
    if credentials_refused(problem) {
        return bad_credentials();
    }
    // The other side can fix all of this while the relay waits, even an expired certificate.
    let message = if problem.code == Code::SSL || reason.to_ascii_lowercase().contains("ssl") {
        format!(
            "no TLS connection to Kafka ({reason}). Check that the broker uses TLS, that its certificate names this host and \
             is trusted (?ca=FILE), and whether it wants one of ours (?cert=FILE&key=FILE)"
        )
    } else {
        format!("can't connect to Kafka ({reason})")
    };
    SinkError::new(Kind::Unreachable, message)
}

/// Checks that Kafka accepts the topic's name.
pub(super) fn check_topic(topic: &str) -> Result<(), SinkError> {
    let why = if topic.is_empty() {
        "it is empty"
    } else if topic.len() > 249 {
        "it has more than 249 characters"
    } else if topic == "." || topic == ".." {
        "it is . or .."
    } else if !topic
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        "only ASCII letters, digits, `.`, `_` and `-` are allowed"
    } else {
        return Ok(());
    };
    Err(SinkError::new(
        Kind::Invalid,
        format!("the topic {topic:?} is not a Kafka topic: {why}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_kafka_has_its_kind() {
        for (code, kind, in_doubt) in [
            (Code::MessageSizeTooLarge, Kind::TooLarge, false),
            (Code::InvalidRecord, Kind::Refused, false),
            (Code::UnknownTopicOrPartition, Kind::MissingStream, false),
            (Code::UnknownTopic, Kind::MissingStream, false),
            (Code::TopicAuthorizationFailed, Kind::NotGranted, false),
            (Code::InvalidTopic, Kind::Invalid, false),
            (Code::NotEnoughReplicas, Kind::Unavailable, false),
            (Code::NotEnoughReplicasAfterAppend, Kind::Unavailable, true),
            (Code::NotLeaderForPartition, Kind::Unavailable, false),
            (Code::InvalidTransactionalState, Kind::Unavailable, true),
            (Code::RequestTimedOut, Kind::Timeout, true),
            (Code::MessageTimedOut, Kind::Timeout, true),
            (Code::BrokerTransportFailure, Kind::Unreachable, true),
            (Code::PurgeInflight, Kind::Timeout, true),
            (Code::SaslAuthenticationFailed, Kind::Misconfigured, false),
            (Code::ClusterAuthorizationFailed, Kind::Misconfigured, false),
            (Code::Fenced, Kind::Misconfigured, false),
            (Code::Unknown, Kind::Busy, true),
        ] {
            let error = refusal(code, "shop.placed", 10).into_error();
            assert_eq!((error.kind, error.in_doubt), (kind, in_doubt), "{code:?}");
        }
    }

    #[test]
    fn a_refusal_of_several_events_blames_none_of_them() {
        for code in [Code::MessageSizeTooLarge, Code::InvalidRecord] {
            assert!(matches!(refusal(code, "t", 1), Refusal::Shared(_)), "{code:?}");
        }
        assert!(matches!(
            refusal(Code::TopicAuthorizationFailed, "t", 1),
            Refusal::Topic(_)
        ));
    }

    #[test]
    fn a_connection_error_gives_advice() {
        let problem = |code, reason: &str| Problem {
            code,
            reason: reason.into(),
        };
        let refused = cannot_reach(&problem(Code::Authentication, "SASL authentication error"));
        assert_eq!(refused.kind, Kind::Misconfigured);
        let tls = cannot_reach(&problem(Code::SSL, "certificate verify failed"));
        assert!(
            tls.kind == Kind::Unreachable && tls.message.contains("?ca=FILE"),
            "{tls}"
        );
        let away = cannot_reach(&problem(Code::BrokerTransportFailure, "Connection refused"));
        assert_eq!(
            (away.kind, away.message.contains("Connection refused")),
            (Kind::Unreachable, true)
        );
    }

    #[test]
    fn a_bad_topic_is_refused_before_sending() {
        for bad in ["", ".", "..", "a b", "größe", "a/b", "a\0b", &"x".repeat(250)] {
            assert_eq!(check_topic(bad).unwrap_err().kind, Kind::Invalid, "{bad:?}");
        }
        for good in ["a", "sc.domain.user", "a_b-C.9", &"x".repeat(249)] {
            assert_eq!(check_topic(good), Ok(()), "{good}");
        }
    }
}
