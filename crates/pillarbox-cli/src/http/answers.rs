//! What every answer has: headers for browsers, and JSON if it is an error.

use axum::{
    body::to_bytes,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::problem::Problem;

const DEFAULTS: [(HeaderName, HeaderValue); 5] = [
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];
/// Longer than every text that a handler or the framework writes.
const TEXT_BYTES_MAX: usize = 16 * 1024;

pub(super) async fn uniform(request: Request, next: Next) -> Response {
    let mut answer = with_json_error(next.run(request).await).await;
    for (name, value) in DEFAULTS {
        answer.headers_mut().entry(name).or_insert(value);
    }
    answer
}

/// Errors that the framework answers itself have a text, or nothing.
async fn with_json_error(answer: Response) -> Response {
    let status = answer.status();
    if !(status.is_client_error() || status.is_server_error()) || is_json(answer.headers()) {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let text = to_bytes(body, TEXT_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let text = match text.trim() {
        "" => status.canonical_reason().unwrap_or("the request failed"),
        text => text,
    };
    let mut answer = Problem::new(status, text).into_response();
    for (name, value) in head.headers {
        let Some(name) = name else { continue };
        if name != header::CONTENT_TYPE && name != header::CONTENT_LENGTH {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}
