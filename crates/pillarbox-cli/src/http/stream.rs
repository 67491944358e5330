//! A live stream of delivered events, as NDJSON.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Api, STREAM_CLIENTS_MAX, problem::ErrorBody};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// A position. Without one, the stream starts with the next event.
    from: Option<u64>,
}

/// Delivered events as they happen
#[utoipa::path(
    get,
    path = "/v1/stream",
    security(("token" = ["read"])),
    params(Wanted),
    responses(
        (status = 200, description = "One event per line, without an end", content_type = "application/x-ndjson", body = String),
        (status = 404, description = "This relay has no `http-stream:` sink", body = ErrorBody),
    )
)]
pub(super) async fn handler(
    State(api): State<Arc<Api>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Response {
    let Ok(Query(wanted)) = wanted else {
        let text = "Ask for /v1/stream, or /v1/stream?from=POSITION with a position that the stream gave.\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let Some(hub) = &api.hub else {
        let text = "This relay has no http-stream: sink, so there is nothing to follow here.\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    let Ok(place) = api.stream_clients.clone().try_acquire_owned() else {
        let text = format!("{STREAM_CLIENTS_MAX} clients already follow the stream; try again later.\n");
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "5")],
            text,
        )
            .into_response();
    };
    let following = (hub.subscribe(wanted.from), api.closing.clone(), place);
    let lines = stream::unfold(following, |(mut subscription, closing, place)| async move {
        let (_, line) = tokio::select! {
            // Events delivered before the end are still sent.
            biased;
            next = subscription.next() => next?,
            () = closing.cancelled() => return None,
        };
        Some((
            Ok::<Bytes, std::convert::Infallible>(line),
            (subscription, closing, place),
        ))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(lines)).into_response()
}
