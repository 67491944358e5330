//! `/v1/scale`, for an autoscaler.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use pillarbox_relay::scale::{Scale, scale};

use super::{Api, problem::Problem};

/// How many relays the outbox wants
#[utoipa::path(
    get,
    path = "/v1/scale",
    security(("token" = ["read"])),
    responses((status = 200, description = "For an autoscaler", body = Scale))
)]
pub(super) async fn handler(State(api): State<Arc<Api>>) -> Result<Json<Scale>, Problem> {
    let found = api.relay.get().and_then(|relay| {
        let sample = relay.progress.sample();
        scale(sample.as_ref(), relay.progress.drain(), &api.scale_limits)
    });
    let unknown = || {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the relay has not looked at the outbox yet",
        )
    };
    found.map(Json).ok_or_else(unknown)
}
