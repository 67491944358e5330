//! Health checks for supervisors.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    Api,
    problem::{ErrorBody, Problem},
};

/// Whether everything is well. There are more members if something is not.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it only describes the answer")]
struct HealthBody {
    healthy: bool,
    /// `running`, `waiting` or `stalled`.
    relay: String,
    database: String,
    /// The state of each sink, by name.
    #[schema(value_type = Object)]
    sinks: Value,
    /// What is wrong: `publisher`, `performance` and `data`.
    #[schema(value_type = Object)]
    parts: Value,
}

/// Whether the process answers
#[utoipa::path(
    get,
    path = "/livez",
    security(()),
    responses((status = 200, description = "It does", content_type = "text/plain", body = String))
)]
pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// Whether the relay works on its database
///
/// A sink that is away does not count: another relay could not reach it either.
#[utoipa::path(
    get,
    path = "/readyz",
    security(()),
    responses(
        (status = 200, description = "It does", content_type = "text/plain", body = String),
        (status = 503, description = "It waits for its database", body = ErrorBody),
    )
)]
pub(super) async fn ready(State(api): State<Arc<Api>>) -> Result<&'static str, Problem> {
    let waiting = |text| Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, text));
    match api.relay.get().map(|relay| relay.progress.report().store_down) {
        None => waiting("waiting for the database"),
        // Everybody may ask, and the database's own words can name hosts and users.
        Some(Some(_)) => waiting("the database is away: /healthz says why"),
        Some(None) => Ok("ready\n"),
    }
}

/// Every dependency, and what is wrong
#[utoipa::path(
    get,
    path = "/healthz",
    security(("token" = ["read"])),
    responses(
        (status = 200, description = "Nothing is wrong", body = HealthBody),
        (status = 503, description = "Something is wrong", body = HealthBody),
    )
)]
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
