//! What an answer of the receiver means for the event.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{
    StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};

use crate::{
    http_client,
    sink::{Outcome, SinkError, SinkErrorKind as Kind},
    tls::handshake_error,
};

/// A receiver that wants no more events is asked this rarely.
const GONE_RETRY: Duration = Duration::from_secs(60);

pub(super) fn of_answer(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Outcome {
    let wait = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry_after(headers, now),
        StatusCode::GONE => Some(GONE_RETRY),
        _ => None,
    };
    match of_status(status) {
        Outcome::Failed(error) => Outcome::Failed(error.retry_after(wait)),
        outcome => outcome,
    }
}

/// A number of seconds, or a date. `None`: missing, unreadable or over. The engine limits it.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Duration::from_secs);
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(at.duration_since(now)).ok()
}

fn of_status(status: StatusCode) -> Outcome {
    let (kind, advice) = match status {
        status if status.is_success() => return Outcome::Delivered,
        StatusCode::PAYLOAD_TOO_LARGE => (Kind::TooLarge, "the event is larger than the receiver accepts"),
        StatusCode::UNPROCESSABLE_ENTITY => (Kind::Refused, "the receiver can't process the event"),
        StatusCode::TOO_MANY_REQUESTS => (
            Kind::Full,
            "the receiver wants fewer requests: lower `webhook.requests_max`",
        ),
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            (Kind::Unavailable, "what is behind the receiver is away")
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (
            Kind::Unclear,
            "check the receiver's secret, and `webhook.headers`",
        ),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            (Kind::Unclear, "check the address of the webhook")
        }
        StatusCode::GONE => (Kind::Unclear, "the receiver wants no more events"),
        StatusCode::PROXY_AUTHENTICATION_REQUIRED | StatusCode::REQUEST_TIMEOUT => (Kind::Unclear, ""),
        status if status.is_redirection() => (
            Kind::Unclear,
            "redirects are not followed: configure the address that it leads to",
        ),
        status if status.is_client_error() => (Kind::Busy, "the receiver refuses the event"),
        _ => (Kind::Unclear, ""),
    };
    let separator = if advice.is_empty() { "" } else { ": " };
    Outcome::Failed(SinkError::new(
        kind,
        format!("the webhook answered {}{separator}{advice}", status.as_u16()),
    ))
}

/// There is no answer. The message does not show the address.
pub(super) fn of_error(error: reqwest::Error) -> SinkError {
    if let Some(reason) = handshake_error(&error) {
        return SinkError::new(
            Kind::Unreachable,
            format!(
                "no TLS connection ({reason}). Check that the receiver's certificate names this host and is trusted \
                 (`webhook.ca`), and whether it wants one of ours (`webhook.cert` and `webhook.key`)"
            ),
        );
    }
    if error.is_connect() {
        return SinkError::new(
            Kind::Unreachable,
            format!("can't connect to the webhook: {}", innermost(&error)),
        );
    }
    if error.is_timeout() {
        return SinkError::new(Kind::Timeout, "the webhook did not answer in time").in_doubt();
    }
    SinkError::new(
        Kind::Unclear,
        format!("the request to the webhook broke: {}", http_client::words(error)),
    )
    .in_doubt()
}

/// The cause of the causes: the others only say that there is one.
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => innermost(cause),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16) -> Option<Kind> {
        match of_status(StatusCode::from_u16(status).unwrap()) {
            Outcome::Failed(error) => Some(error.kind),
            outcome => {
                assert_eq!(outcome, Outcome::Delivered);
                None
            }
        }
    }

    #[test]
    fn every_status_has_a_meaning() {
        for status in 100..1000 {
            let expected = match status {
                200..300 => None,
                413 => Some(Kind::TooLarge),
                422 => Some(Kind::Refused),
                429 => Some(Kind::Full),
                502..=504 => Some(Kind::Unavailable),
                401 | 403 | 404 | 405 | 407 | 408 | 410 => Some(Kind::Unclear),
                400..500 => Some(Kind::Busy),
                _ => Some(Kind::Unclear),
            };
            assert_eq!(kind(status), expected, "{status}");
        }
    }

    #[test]
    fn the_receiver_can_ask_for_a_wait() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let wait = |status: u16, asked: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, asked.parse().unwrap());
            match of_answer(StatusCode::from_u16(status).unwrap(), &headers, now) {
                Outcome::Failed(error) => error.retry_after.map(|wait| wait.as_secs()),
                outcome => panic!("{outcome:?}"),
            }
        };
        for status in [429, 503] {
            for (asked, seconds) in [
                ("7", Some(7)),
                (" 0 ", Some(0)),
                ("Sun, 01 Mar 2026 12:01:30 GMT", Some(90)),
                ("Sun, 01 Mar 2026 11:00:00 GMT", None),
                ("soon", None),
                ("-1", None),
                ("1.5", None),
                ("99999999999999999999", None),
                ("", None),
            ] {
                assert_eq!(wait(status, asked), seconds, "{status} {asked:?}");
            }
        }
        assert_eq!(wait(500, "7"), None);
        assert_eq!(wait(410, "7"), Some(60));
    }
}
