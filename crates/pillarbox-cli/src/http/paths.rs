//! The paths of the servers, and what a request passes before it reaches its handler: [`answers`] (headers, errors as
//! JSON), [`access::refusals`] (the log of refused ones), [`requests`] (what is refused whoever sends it) and the
//! [`access`] gate (who sends it, and whether that caller may).

use std::{net::Ipv4Addr, sync::Arc};

use axum::{
    Extension, Router,
    http::{Method, StatusCode},
    middleware::{self, from_fn_with_state},
};
use tokio_util::sync::CancellationToken;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Api,
    access::{self, gate::Gate, refusals::Refusals},
    answers, catalog, dead, events, health, history, metrics, openapi, page,
    problem::Problem,
    requests::{self, Hosts},
    scale, status, stream,
};

/// `stop` ends its tasks.
pub(super) fn router(api: Arc<Api>, stop: &CancellationToken) -> Router {
    let (router, document) = routes(api.metrics_prefix.is_some(), api.health_checks).split_for_parts();
    let document = openapi::completed(document);
    let access = api.access.as_ref();
    let gate = Arc::new(Gate::new(&document, access));
    tokio::spawn(gate.clone().refresh(stop.clone()));
    let loopback = || Hosts::new(&[], Ipv4Addr::LOCALHOST.into());
    let hosts = access.map_or_else(loopback, |access| Hosts::new(&access.hosts, access.listen.ip()));
    let router = router
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(Extension(openapi::Served::new(&document)))
        .layer(middleware::from_fn(requests::timely_body))
        .layer(from_fn_with_state(gate, access::gate::enforce));
    guarded(router, hosts).with_state(api)
}

/// Metrics and health checks, under any name and without a token.
pub(super) fn monitoring(api: Arc<Api>) -> Router {
    let (router, _) = checks(api.metrics_prefix.is_some(), api.health_checks).split_for_parts();
    let router = router.layer(middleware::from_fn(requests::timely_body));
    guarded(router, Hosts::Any).with_state(api)
}

/// What all servers have.
fn guarded(router: Router<Arc<Api>>, hosts: Hosts) -> Router<Arc<Api>> {
    router
        .layer(from_fn_with_state(
            Arc::new(hosts),
            requests::only_own_names_and_pages,
        ))
        .layer(from_fn_with_state(
            Arc::<Refusals>::default(),
            access::refusals::log,
        ))
        .layer(middleware::from_fn(answers::uniform))
}

/// Every path. A handler outside this list is not served.
pub(super) fn routes(metrics: bool, health_checks: bool) -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(page::handler))
        .routes(routes!(openapi::handler))
        .routes(routes!(stream::handler))
        .merge(history::router())
        .routes(routes!(events::write))
        .routes(routes!(status::handler))
        .routes(routes!(scale::handler))
        .routes(routes!(catalog::handler))
        .merge(dead::router())
        .merge(checks(metrics, health_checks))
}

fn checks(metrics: bool, health_checks: bool) -> OpenApiRouter<Arc<Api>> {
    let mut router = OpenApiRouter::new();
    if metrics {
        router = router.routes(routes!(metrics::handler));
    }
    if health_checks {
        router = router
            .routes(routes!(health::live))
            .routes(routes!(health::ready))
            .routes(routes!(health::health));
    }
    router
}

async fn no_such_path() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "there is no such path: /v1/openapi.json lists what there is",
    )
}

async fn no_such_method(method: Method) -> Problem {
    let text = format!("this path does not answer {method}: /v1/openapi.json lists what it answers");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, text)
}
