//! The MongoDB store on a real replica set: the whole contract, and what it promises beyond it.

// Clippy knows a test by its attribute, not the functions it calls.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod assumptions;
mod costs;
mod discovery;
mod enqueueing;
mod faults;
mod harness;
mod letters;
mod plans;
mod rows;
mod schema;
mod shop;

use std::sync::Arc;

use pillarbox_testkit::{
    contract::store::{self, StoreHarness},
    servers,
};

use self::harness::MongoHarness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_its_contract() {
    let Some(server) = servers::mongo().await else {
        return;
    };
    store::all(|| async { Arc::new(MongoHarness::new(server).await) as Arc<dyn StoreHarness> }).await;
}
