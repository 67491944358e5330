//! What went wrong with a request, as JSON that says what to do.

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use pillarbox_relay::{
    dead::BulkError,
    store::{StoreError, StoreErrorKind},
};
use serde_json::json;

pub(super) struct Problem {
    status: StatusCode,
    text: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
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
        let body = Json(json!({ "error": self.text }));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            return (self.status, [(header::RETRY_AFTER, "5")], body).into_response();
        }
        (self.status, body).into_response()
    }
}
