//! Databases and the schema registry over TLS, with a private authority and certificates of clients. NATS and Kafka:
//! see `sinks`.

mod mongodb;
mod postgres;
mod registry;

use std::time::Duration;

use pillarbox::{Event, Limits};
use pillarbox_relay::{
    Relay,
    connect::{self, DatabaseOptions},
    store::{StoreError, StoreErrorKind},
};
use pillarbox_testkit::wait;

/// In an address, and never in an error.
const PASSWORD: &str = "geheim";

/// Migrates, writes an event and delivers it, all over this address.
async fn assert_delivers(url: &str) {
    let relay = Relay::open(url, "null:").unwrap();
    let admin = relay.store.admin.clone();
    admin
        .migrate()
        .await
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let relay = relay.start();
    let event = Event::to("shop.placed")
        .event_type("Placed")
        .aggregate("order", "1");
    admin.enqueue(&Limits::default(), &[event]).await.unwrap();
    wait::until("the event is delivered", async || {
        relay.progress.report().published == 1
    })
    .await;
    relay.stop().await.unwrap();
}

/// What `migrate` says about this address.
async fn refusal(url: &str) -> StoreError {
    let options = DatabaseOptions {
        connect_timeout: Duration::from_secs(2),
        ..DatabaseOptions::new(url)
    };
    let store = connect::store(&options).unwrap();
    store.admin.migrate().await.unwrap_err()
}

async fn assert_refused(url: &str, kind: StoreErrorKind, parts: &[&str]) {
    assert_says(&refusal(url).await, kind, parts);
}

fn assert_refused_before_connecting(url: &str, parts: &[&str]) {
    let error = connect::store(&DatabaseOptions::new(url)).err().unwrap();
    assert_says(&error, StoreErrorKind::Misconfigured, parts);
}

fn assert_says(error: &StoreError, kind: StoreErrorKind, parts: &[&str]) {
    let text = error.chain();
    assert_eq!(error.kind, kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing: {text}");
    }
    assert!(!text.contains(PASSWORD), "{text}");
}
