//! Turns an answer of JetStream into an outcome or an error.

use async_nats::{Message, StatusCode, jetstream::ErrorCode};
use serde::Deserialize;

use crate::sink::{Outcome, Outgoing, SinkError, SinkErrorKind as Kind};

/// One answer to one publish.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Stored now or before.
    Stored,
    NoResponders,
    Error {
        code: u64,
        status: u16,
        text: String,
        /// The stream that answered.
        stream: String,
    },
    Unreadable,
}

#[derive(Deserialize)]
struct Acknowledgement<'a> {
    #[serde(borrow, default)]
    stream: Option<std::borrow::Cow<'a, str>>,
    seq: Option<u64>,
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl Reply {
    pub(super) fn read(message: &Message) -> Self {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return Self::NoResponders;
        }
        Self::parse(&message.payload)
    }

    fn parse(payload: &[u8]) -> Self {
        match serde_json::from_slice::<Acknowledgement<'_>>(payload) {
            Ok(Acknowledgement {
                error: Some(error),
                stream,
                ..
            }) => Self::Error {
                code: error.err_code,
                status: error.code,
                text: error.description,
                stream: stream.unwrap_or_default().into_owned(),
            },
            // An answer without a stream and a sequence stored nothing. It may come from another subscriber.
            Ok(Acknowledgement {
                stream: Some(_),
                seq: Some(1..),
                error: None,
            }) => Self::Stored,
            _ => Self::Unreadable,
        }
    }

    pub(super) fn outcome(self, outgoing: &Outgoing) -> Outcome {
        let topic = &outgoing.event.event.topic;
        let error = match self {
            Self::Stored => return Outcome::Delivered,
            Self::NoResponders => SinkError::new(
                Kind::Unavailable,
                format!("no stream stores the subject {topic}. `pillarbox streams apply` creates the configured streams"),
            ),
            Self::Unreadable => SinkError::new(
                Kind::Unavailable,
                format!(
                    "the answer to {topic} is not a JetStream acknowledgement: something else answers on that subject"
                ),
            )
            .in_doubt(),
            Self::Error { code, status, text, stream } => api_error(code, status, &text, &stream, outgoing),
        };
        Outcome::Failed(error)
    }
}

fn api_error(code: u64, status: u16, text: &str, stream: &str, outgoing: &Outgoing) -> SinkError {
    let topic = &outgoing.event.event.topic;
    let bytes = outgoing.event.event.payload.len();
    let says = format!("stream {stream} refused {topic}: {text} (error {code})");
    match ErrorCode(code) {
        ErrorCode::STREAM_NOT_MATCH => SinkError::new(
            Kind::MissingStream,
            format!(
                "the subject {topic} belongs to stream {stream}, not to {}. Correct the route, or let \
                 `pillarbox streams apply` give the subject to the right stream",
                outgoing.stream.as_deref().unwrap_or("the expected one"),
            ),
        ),
        ErrorCode::STREAM_NOT_FOUND | ErrorCode::STREAM_MISMATCH => SinkError::new(
            Kind::MissingStream,
            format!("{says}. Run `pillarbox streams apply`"),
        ),
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            SinkError::new(Kind::TooLarge, format!("{says}; the payload has {bytes} bytes"))
        }
        // The event is not at fault. It waits until the stream is created again, or its subject moves to another
        // stream.
        ErrorCode::STREAM_SEALED => SinkError::new(Kind::Unavailable, says),
        // The answers of a stream without room.
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::STREAM_TOO_MANY_REQUESTS => {
            SinkError::new(Kind::Full, format!("{says}. Make room in it"))
        }
        // The same id is being stored right now. The next attempt will find it.
        ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT => SinkError::new(Kind::Unavailable, says),
        _ if status >= 500 => SinkError::new(Kind::Unavailable, says),
        _ if status == 429 => SinkError::new(Kind::Full, says),
        _ => SinkError::new(Kind::Refused, says),
    }
}

/// A permission that is missing, according to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denied {
    Publish(String),
    Subscribe(String),
}

/// Reads `Permissions Violation for Publish to "a.b"`.
pub(super) fn denied(text: &str) -> Option<Denied> {
    let subject = || text.split('"').nth(1).map(str::to_owned);
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("permissions violation for publish") {
        subject().map(Denied::Publish)
    } else if lower.starts_with("permissions violation for subscription") {
        subject().map(Denied::Subscribe)
    } else {
        None
    }
}

pub(super) fn misconfigured(message: impl Into<String>) -> SinkError {
    SinkError::new(Kind::Misconfigured, message)
}

pub(super) fn inbox_denied() -> SinkError {
    misconfigured("this NATS user may not subscribe to _INBOX.>, where acknowledgements come. Grant it")
}

/// JetStream can store a subject of tokens without wildcards, white space or control characters.
pub(super) fn check_subject(topic: &str) -> Result<(), SinkError> {
    let why = if topic.is_empty() {
        "it is empty"
    } else if topic.split('.').any(str::is_empty) {
        "a token between dots is empty"
    } else if topic.split('.').any(|token| token == "*" || token == ">") {
        "it contains a wildcard"
    } else if topic.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "it contains white space or a control character"
    } else if topic.starts_with('$') {
        "subjects that begin with $ belong to the server"
    } else {
        return Ok(());
    };
    Err(SinkError::new(
        Kind::Invalid,
        format!("the topic {topic:?} is not a NATS subject: {why}"),
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::StoredEvent;

    fn kind_of(payload: &str) -> Option<Kind> {
        let event = StoredEvent {
            seq: 1,
            lane: 0,
            attempts: 0,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            event: pillarbox::Event::to("shop.placed")
                .event_type("X")
                .aggregate("order", "1"),
        };
        let outgoing = Outgoing {
            stream: Some("SHOP".into()),
            ..Outgoing::new(Arc::new(event))
        };
        match Reply::parse(payload.as_bytes()).outcome(&outgoing) {
            Outcome::Delivered => None,
            Outcome::Failed(error) => Some(error.kind),
            Outcome::NotTried => unreachable!("an answer is never NotTried"),
        }
    }

    #[test]
    fn only_a_stored_event_is_delivered() {
        assert_eq!(kind_of(r#"{"stream":"SHOP","seq":7}"#), None);
        assert_eq!(
            kind_of(r#"{"stream":"SHOP","seq":7,"duplicate":true,"domain":"hub"}"#),
            None
        );
        for stray in [
            "",
            "+OK",
            "{}",
            r#"{"stream":"SHOP"}"#,
            r#"{"stream":"SHOP","seq":0}"#,
            "[1]",
        ] {
            assert_eq!(kind_of(stray), Some(Kind::Unavailable), "{stray}");
        }
    }

    #[test]
    fn each_error_of_jetstream_has_its_kind() {
        for (status, code, kind) in [
            (400, 10060, Kind::MissingStream),
            (404, 10059, Kind::MissingStream),
            (400, 10054, Kind::TooLarge),
            (400, 10097, Kind::TooLarge),
            (503, 10077, Kind::Full),
            (400, 10047, Kind::Full),
            (429, 10167, Kind::Full),
            (503, 10023, Kind::Unavailable),
            (503, 10008, Kind::Unavailable),
            (400, 10109, Kind::Unavailable),
            (400, 19999, Kind::Refused),
        ] {
            let payload = format!(
                r#"{{"error":{{"code":{status},"err_code":{code},"description":"x"}},"stream":"OTHER","seq":0}}"#
            );
            assert_eq!(kind_of(&payload), Some(kind), "{code}");
        }
    }

    #[test]
    fn a_bad_subject_is_refused_before_sending() {
        for bad in [
            "",
            ".",
            "a..b",
            "a.",
            ".a",
            "a.*",
            ">",
            "a b",
            "a\tb",
            "a\r\nPUB x",
            "$JS.API.INFO",
        ] {
            assert_eq!(check_subject(bad).unwrap_err().kind, Kind::Invalid, "{bad:?}");
        }
        for good in ["a", "a.b-c_d", "größe.neu", "a.b*c"] {
            assert_eq!(check_subject(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_missing_right_names_its_subject() {
        assert_eq!(
            denied(r#"Permissions Violation for Publish to "a.b""#),
            Some(Denied::Publish("a.b".into()))
        );
        assert_eq!(
            denied(r#"Permissions Violation for Subscription to "_INBOX.x.*""#),
            Some(Denied::Subscribe("_INBOX.x.*".into()))
        );
        assert_eq!(denied("Maximum Payload Violation"), None);
    }
}
