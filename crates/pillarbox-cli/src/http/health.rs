//! Health checks for supervisors.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use pillarbox_relay::engine::{Progress, SinkState};
use serde_json::json;

use super::Api;

/// The process answers.
pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// A relay's loop runs every second. After this time without a run it is stuck.
const LOOP_SILENT_MAX: Duration = Duration::from_secs(30);

/// The relay's reported stall, or that its loop is stuck.
fn stalled(progress: &Progress) -> Option<String> {
    let silent = progress.silent_for();
    let silent = (silent > LOOP_SILENT_MAX)
        .then(|| format!("the relay's loop has been stuck for {} s", silent.as_secs()));
    let stalled = progress.report().stalled;
    stalled.map(|stalled| stalled.why).or(silent)
}

/// The relay works on its database. A sink that is away does not count: another relay could not reach it
/// either.
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

/// Every dependency of the relay, one by one.
pub(super) async fn health(State(api): State<Arc<Api>>) -> impl IntoResponse {
    let Some((_, progress)) = api.relay.get() else {
        let waiting = json!({ "healthy": false, "relay": "waiting", "database": "unknown", "sinks": {} });
        return (StatusCode::SERVICE_UNAVAILABLE, Json(waiting));
    };
    let report = progress.report();
    let stalled = stalled(progress);
    let healthy = report.store_down.is_none()
        && stalled.is_none()
        && report.paused.is_empty()
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
    if !report.paused.is_empty() {
        health["paused"] = json!(report.paused);
    }
    if let Some(waiting_for) = stalled {
        health["relay"] = json!("stalled");
        health["waiting_for"] = json!(waiting_for);
    }
    if let Some(why) = report.schema_registry_down {
        health["schema_registry"] = json!(why);
    }
    (code, Json(health))
}
