//! The state of the outbox and of this relay.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Json, extract::State};
use pillarbox_relay::store::admin::StoreStatus;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::Api;

/// Counting a large backlog is work for the database, so concurrent requests share one answer.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Cache(Mutex<Option<(Instant, Result<StoreStatus, String>)>>);

/// The state of the outbox, as this relay sees it.
#[derive(Serialize, ToSchema)]
pub(super) struct Status {
    version: &'static str,
    /// What this process delivers, its sinks and its lanes; `null` while it waits for its database.
    #[schema(value_type = Option<Object>)]
    relay: Option<Value>,
    /// The counts of the outbox, and the relays that share it.
    #[schema(value_type = Option<Object>)]
    store: Option<StoreStatus>,
    /// Why there is no `store`.
    store_problem: Option<String>,
    /// The parts of `/healthz`.
    #[schema(value_type = Object)]
    health: Value,
}

/// The state of the outbox and of this relay
#[utoipa::path(
    get,
    path = "/v1/status",
    security(("token" = ["read"])),
    responses((status = 200, description = "Also if the database is away", body = Status))
)]
pub(super) async fn handler(State(api): State<Arc<Api>>) -> Json<Status> {
    let relay = api.relay.get().map(|running| {
        let mut relay = json!(running.progress.report());
        relay["id"] = json!(running.id);
        relay
    });
    let (store, problem) = match api.store_status().await {
        Ok(status) => (Some(status), None),
        Err(problem) => (None, Some(problem)),
    };
    Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        relay,
        store,
        store_problem: problem,
        health: api.health()["parts"].take(),
    })
}

impl Api {
    async fn store_status(&self) -> Result<StoreStatus, String> {
        let mut cached = self.store_status.0.lock().await;
        match &*cached {
            Some((at, status)) if at.elapsed() < FRESH => status.clone(),
            _ => {
                let status = self.admin.status().await.map_err(|error| error.chain());
                *cached = Some((Instant::now(), status.clone()));
                status
            }
        }
    }
}
