//! What was delivered, as NDJSON, while it happens.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::Api;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    from: Option<u64>,
}

pub(super) async fn handler(State(api): State<Arc<Api>>, Query(wanted): Query<Wanted>) -> Response {
    let _ = (api.hub.as_ref(), wanted.from, &api.stream_clients, &api.closing);
    (StatusCode::NOT_FOUND, "no stream\n").into_response()
}
