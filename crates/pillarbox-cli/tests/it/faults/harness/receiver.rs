//! Reads a whole stream with the bare client.

use async_nats::jetstream::{
    self,
    consumer::{DeliverPolicy, pull::OrderedConfig},
    message::Message,
};
use futures::StreamExt;
use pillarbox_testkit::ledger::Ledger;

use super::PATIENCE;

/// Everything in the stream, in order.
pub(in super::super) async fn messages(nats: &str, stream: &str) -> Vec<Message> {
    let context = jetstream::new(async_nats::connect(nats).await.unwrap());
    let stream = context.get_stream(stream).await.unwrap();
    let total = stream.cached_info().state.messages as usize;
    if total == 0 {
        return Vec::new();
    }
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::All,
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await.unwrap();
    let read = consumer
        .messages()
        .await
        .unwrap()
        .take(total)
        .map(|message| message.unwrap())
        .collect();
    tokio::time::timeout(PATIENCE, read)
        .await
        .expect("the stream was not read to its end in time")
}

/// Passes everything in the stream to the ledger.
pub(in super::super) async fn read_stream(nats: &str, stream: &str, ledger: &Ledger) {
    for message in messages(nats, stream).await {
        let id = message
            .headers
            .as_ref()
            .and_then(|headers| headers.get("Nats-Msg-Id"));
        let id = id.unwrap_or_else(|| panic!("a message without an id: {message:?}"));
        ledger.seen(id.as_str());
    }
}
