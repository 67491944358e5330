//! The kinds of events.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use jiff::Timestamp;
use pillarbox_relay::{catalog::Catalog, check::Checks, route::Routes};
use serde::Deserialize;
use tokio::sync::Mutex;
use utoipa::IntoParams;

use super::{Api, problem::Problem};
use crate::command::catalog::LAST;

/// Each read covers many rows: only one runs at a time, and concurrent equal requests share its answer.
const FRESH: Duration = Duration::from_secs(5);
/// The maximum here. It is lower than on the command line.
const LAST_MAX: u32 = LAST;

#[derive(Default)]
pub(super) struct Shared {
    /// `None`: this process delivers nothing.
    delivering: Option<(Routes, Option<Arc<Checks>>)>,
    latest: Mutex<Option<(Instant, u32, Catalog)>>,
}

impl Shared {
    pub(super) fn new(routes: Routes, checks: Option<Arc<Checks>>) -> Self {
        Self {
            delivering: Some((routes, checks)),
            latest: Mutex::default(),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// How many of the latest events to look at: 100,000 by default and at most.
    #[param(minimum = 1, maximum = 100000)]
    last: Option<u32>,
}

/// The kinds of events
#[utoipa::path(
    get,
    path = "/v1/catalog",
    security(("token" = ["read"])),
    params(Wanted),
    responses((status = 200, description = "The kinds among the latest events", body = Catalog))
)]
pub(super) async fn handler(
    State(api): State<Arc<Api>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Catalog>, Problem> {
    let last = wanted.ok().map(|Query(wanted)| wanted.last.unwrap_or(LAST));
    let last = last.filter(|last| (1..=LAST_MAX).contains(last)).ok_or_else(|| {
        Problem::bad(format!(
            "Ask for /v1/catalog, or /v1/catalog?last=COUNT with 1 to {LAST_MAX} of the latest events."
        ))
    })?;
    let mut latest = api.catalog.latest.lock().await;
    if let Some((at, of, catalog)) = &*latest
        && *of == last
        && at.elapsed() < FRESH
    {
        return Ok(Json(catalog.clone()));
    }
    let nowhere = || (Routes::new(Vec::new()), None);
    let (routes, checks) = api.catalog.delivering.clone().unwrap_or_else(nowhere);
    let catalog = Catalog::of(
        &*api.admin,
        last as usize,
        &routes,
        checks.as_deref(),
        Timestamp::now(),
    )
    .await?;
    *latest = Some((Instant::now(), last, catalog.clone()));
    Ok(Json(catalog))
}
