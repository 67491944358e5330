//! For whoever watches over the process.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use pillarbox_relay::engine::SinkState;
use serde_json::json;

use super::Api;

/// The process answers.
pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// The relay works on its database. A sink that is away does not count: another relay would not reach it either.
pub(super) async fn ready(State(api): State<Arc<Api>>) -> impl IntoResponse {
    match api.relay.get().map(|(_, progress)| progress.report().store_down) {
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the database\n".to_owned(),
        ),
        Some(Some(why)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the database is away: {why}\n"),
        ),
        Some(None) => (StatusCode::OK, "ready\n".to_owned()),
    }
}

/// Everything the relay needs, one by one.
pub(super) async fn health(State(api): State<Arc<Api>>) -> impl IntoResponse {
    let Some((_, progress)) = api.relay.get() else {
        let waiting = json!({ "healthy": false, "relay": "waiting", "database": "unknown", "sinks": {} });
        return (StatusCode::SERVICE_UNAVAILABLE, Json(waiting));
    };
    let report = progress.report();
    let healthy = report.store_down.is_none()
        && report.schema_registry_down.is_none()
        && report.sinks.values().all(|state| *state == SinkState::Up);
    let code = if healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let database = report.store_down.as_deref().unwrap_or("up");
    let mut health =
        json!({ "healthy": healthy, "relay": "running", "database": database, "sinks": report.sinks });
    if let Some(why) = report.schema_registry_down {
        health["schema_registry"] = json!(why);
    }
    (code, Json(health))
}
