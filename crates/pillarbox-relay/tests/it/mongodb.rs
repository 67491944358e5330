//! The MongoDB store on a real replica set: the contract suite, and tests of MongoDB alone.

// Clippy allows `unwrap` in functions with a test attribute, but not in the helpers that they call.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod assumptions;
mod costs;
mod discovery;
mod enqueueing;
mod event_log;
mod faults;
mod harness;
mod letters;
mod plans;
mod rows;
mod schema;
mod shop;

use std::sync::Arc;

use pillarbox_testkit::{contract::store::StoreHarness, servers, store_contract};

use self::harness::MongoHarness;

mod contract {
    use super::*;

    async fn fresh() -> Option<Arc<dyn StoreHarness>> {
        let server = servers::mongo().await?;
        Some(Arc::new(MongoHarness::new(server).await))
    }

    store_contract!(fresh);
}
