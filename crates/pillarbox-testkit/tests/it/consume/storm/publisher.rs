//! Publishes events as the relay does: in order per key, repeated until the broker acknowledges them, and
//! some twice.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_nats::jetstream;
use pillarbox::EventId;
use pillarbox_testkit::ledger::Ledger;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::SUBJECT;
use crate::consume::harness::{Published, headers};

const KEYS: u32 = 48;
/// One event in this many is sent again without the broker's id, so that only the inbox can find the copy.
const COPIED: u32 = 20;

pub(super) struct Publisher {
    client: async_nats::Client,
    versions: Mutex<HashMap<u32, i64>>,
    ledger: Arc<Ledger>,
}

impl Publisher {
    pub(super) async fn new(url: &str, ledger: &Arc<Ledger>) -> Self {
        let client = async_nats::ConnectOptions::new()
            .request_timeout(Some(Duration::from_secs(2)))
            .reconnect_delay_callback(|_| Duration::from_millis(100))
            .connect(url)
            .await
            .unwrap();
        Self {
            client,
            versions: Mutex::default(),
            ledger: Arc::clone(ledger),
        }
    }

    pub(super) fn server_version(&self) -> String {
        self.client.server_info().version
    }

    pub(super) async fn publish_on(&self, seed: u64, over: CancellationToken) {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(1_000));
        let mut context = jetstream::new(self.client.clone());
        context.set_timeout(Duration::from_secs(2));
        let mut versions = self.versions.lock().await;
        while !over.is_cancelled() {
            let key = rng.random_range(0..KEYS);
            let version = versions.entry(key).or_default();
            *version += 1;
            let event = (EventId::new(), format!("k-{key}"), *version);
            while !publish(&context, &event, true).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            self.ledger
                .committed(event.0.clone(), &event.1, event.2.unsigned_abs());
            if rng.random_range(0..COPIED) == 0 {
                publish(&context, &event, false).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(1..8))).await;
        }
    }
}

/// Returns whether the broker has the event.
async fn publish(context: &jetstream::Context, event: &Published, with_id: bool) -> bool {
    let mut headers = headers(event);
    if with_id {
        headers.insert("Nats-Msg-Id", event.0.to_string());
    }
    let sent = context.publish_with_headers(SUBJECT, headers, "{\"n\":1}".into());
    match sent.await {
        Ok(acknowledgement) => acknowledgement.await.is_ok(),
        Err(_) => false,
    }
}
