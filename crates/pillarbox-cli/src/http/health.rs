//! Health checks for supervisors.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use serde_json::{Value, json};

use super::Api;

/// The process answers.
pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// The relay works on its database. A sink that is away does not count: another relay could not reach it
/// either.
pub(super) async fn ready(State(api): State<Arc<Api>>) -> impl IntoResponse {
    match api.relay.get().map(|relay| relay.progress.report().store_down) {
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

/// Every dependency of the relay, and what is wrong, in three parts.
pub(super) async fn health(State(api): State<Arc<Api>>) -> impl IntoResponse {
    let health = api.health();
    let code = match health["healthy"] == true {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(health))
}

impl Api {
    /// The answer of `/healthz`.
    pub(super) fn health(&self) -> Value {
        let Some(relay) = self.relay.get() else {
            let waiting = json!({ "healthy": false, "problems": ["waiting for the database"] });
            let unknown = json!({ "healthy": false, "problems": [] });
            let parts = json!({ "publisher": waiting, "performance": unknown, "data": unknown });
            return json!({
                "healthy": false, "relay": "waiting", "database": "unknown", "sinks": {}, "parts": parts,
            });
        };
        let report = relay.progress.report();
        let health = relay.progress.health(&self.health_limits);
        let database = report.store_down.as_deref().unwrap_or("up");
        let mut answer = json!({
            "healthy": health.is_healthy(),
            "relay": "running",
            "database": database,
            "sinks": report.sinks,
            "parts": health.parts(),
        });
        if !report.paused.is_empty() {
            answer["paused"] = json!(report.paused);
        }
        if let Some(waiting_for) = relay.progress.stalled() {
            answer["relay"] = json!("stalled");
            answer["waiting_for"] = json!(waiting_for);
        }
        if let Some(why) = report.schema_registry_down {
            answer["schema_registry"] = json!(why);
        }
        answer
    }
}
