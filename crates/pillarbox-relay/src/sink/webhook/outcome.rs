//! What an answer of the receiver means for the event.

use reqwest::StatusCode;

use crate::{
    http_client,
    sink::{Outcome, SinkError, SinkErrorKind as Kind},
    tls::handshake_error,
};

pub(super) fn of_status(status: StatusCode) -> Outcome {
    let (kind, advice) = match status {
        status if status.is_success() => return Outcome::Delivered,
        StatusCode::PAYLOAD_TOO_LARGE => (Kind::TooLarge, "the event is larger than the receiver accepts"),
        StatusCode::UNPROCESSABLE_ENTITY => (Kind::Refused, "the receiver can't process the event"),
        StatusCode::TOO_MANY_REQUESTS => (
            Kind::Full,
            "the receiver wants fewer requests: lower `webhook.requests_max`",
        ),
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
                401 | 403 | 404 | 405 | 407 | 408 | 410 => Some(Kind::Unclear),
                400..500 => Some(Kind::Busy),
                _ => Some(Kind::Unclear),
            };
            assert_eq!(kind(status), expected, "{status}");
        }
    }
}
