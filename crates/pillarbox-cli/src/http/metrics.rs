//! `/metrics`, for Prometheus.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::Api;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics for Prometheus
///
/// In OpenMetrics if the client accepts it, otherwise in the older text format.
#[utoipa::path(
    get,
    path = "/metrics",
    security(("token" = ["read"])),
    responses((status = 200, description = "The metrics", content(
        (String = "text/plain"),
        (String = "application/openmetrics-text"),
    )))
)]
pub(super) async fn handler(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    let Some(exporter) = api.relay.get().and_then(|relay| relay.metrics.as_ref()) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "waiting for the database\n").into_response();
    };
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    if accepts.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
        ([(header::CONTENT_TYPE, OPEN_METRICS)], exporter.open_metrics()).into_response()
    } else {
        ([(header::CONTENT_TYPE, TEXT)], exporter.text()).into_response()
    }
}
