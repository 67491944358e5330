//! An error of a request, as JSON that says what to do.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use pillarbox_relay::{
    dead::BulkError,
    store::{StoreError, StoreErrorKind},
};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A database that is away may be back by then.
const AWAY: Duration = Duration::from_secs(5);

/// The body of every error.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it only describes the answer")]
pub(super) struct ErrorBody {
    /// What is wrong, and what to do. Some errors have more members.
    error: String,
}

#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    text: String,
    /// Details for programs, besides the text.
    more: serde_json::Map<String, Value>,
    retry_after: Option<Duration>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            more: serde_json::Map::new(),
            retry_after: (status == StatusCode::SERVICE_UNAVAILABLE).then_some(AWAY),
        }
    }

    /// Adds the members of an object to the answer.
    pub(super) fn with(mut self, more: Value) -> Self {
        if let Value::Object(more) = more {
            self.more.extend(more);
        }
        self
    }

    pub(super) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The caller is not known.
    pub(super) fn unauthorized(text: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, text)
    }

    /// It concerns one of the events of the request. None of them was written.
    pub(super) fn of_event(mut self, index: usize) -> Self {
        self.text = format!("event {index}: {}. Nothing was written", self.text);
        self.with(json!({ "index": index }))
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(status(error.kind), error.chain())
    }
}

impl From<BulkError> for Problem {
    fn from(error: BulkError) -> Self {
        match &error {
            BulkError::TooMany => Self::bad(error.to_string()),
            BulkError::Store { done: 0, error } => Self::new(status(error.kind), error.chain()),
            BulkError::Store { error: cause, .. } => Self::new(status(cause.kind), error.to_string()),
        }
    }
}

fn status(kind: StoreErrorKind) -> StatusCode {
    match kind {
        StoreErrorKind::Away | StoreErrorKind::NotMigrated => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({ "error": self.text });
        if let Value::Object(body) = &mut body {
            body.extend(self.more);
        }
        let mut answer = (self.status, Json(body)).into_response();
        let headers = answer.headers_mut();
        if let Some(wait) = self.retry_after {
            // The header allows only whole seconds.
            let seconds = wait.as_millis().div_ceil(1_000).max(1);
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}
