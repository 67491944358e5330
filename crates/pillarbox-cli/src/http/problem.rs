//! An error of a request, as JSON that says what to do.

use std::time::Duration;

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use pillarbox_relay::{
    dead::BulkError,
    store::{StoreError, StoreErrorKind},
};
use serde_json::{Value, json};

/// A database that is away may be back by then.
const AWAY: Duration = Duration::from_secs(5);

pub(super) struct Problem {
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
        match self.retry_after {
            None => (self.status, Json(body)).into_response(),
            // The header allows only whole seconds.
            Some(wait) => {
                let seconds = wait.as_millis().div_ceil(1_000).max(1).to_string();
                (self.status, [(header::RETRY_AFTER, seconds)], Json(body)).into_response()
            }
        }
    }
}
