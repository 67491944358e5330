//! The state of the outbox and of this relay.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Json, extract::State};
use pillarbox_relay::store::admin::StoreStatus;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Api;

/// Counting a large backlog is work for the database, so concurrent requests share one answer.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Cache(Mutex<Option<(Instant, Result<StoreStatus, String>)>>);

pub(super) async fn handler(State(api): State<Arc<Api>>) -> Json<Value> {
    let relay = api.relay.get().map(|running| {
        let mut relay = json!(running.progress.report());
        relay["id"] = json!(running.id);
        relay
    });
    let (store, problem) = match api.store_status().await {
        Ok(status) => (Some(status), None),
        Err(problem) => (None, Some(problem)),
    };
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "relay": relay,
        "store": store,
        "store_problem": problem,
        "health": api.health()["parts"],
    }))
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
