//! `/v1/scale`, for an autoscaler.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use pillarbox_relay::scale::scale;

use super::{Api, problem::Problem};

pub(super) async fn handler(State(api): State<Arc<Api>>) -> Response {
    let found = api.relay.get().and_then(|relay| {
        let sample = relay.progress.sample();
        scale(sample.as_ref(), relay.progress.drain(), &api.scale_limits)
    });
    match found {
        Some(scale) => Json(scale).into_response(),
        None => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the relay has not looked at the outbox yet",
        )
        .into_response(),
    }
}
