//! JetStream: killed, restarted, frozen; its stream full or deleted.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use async_nats::jetstream::{
    self,
    consumer::{DeliverPolicy, pull::OrderedConfig},
    stream::{Config, DiscardPolicy},
};
use futures::StreamExt;
use pillarbox::EventId;
use pillarbox_testkit::{
    ledger::Ledger,
    proxy::Proxy,
    servers::Nats,
    storm::{Source, Storm},
};
use rand::RngExt;
use tokio::sync::Mutex;

use super::Broker;
use crate::campaigns::until_answered;

const STREAM: &str = "EVENTS";
/// The timeout of one request to a server that may be away.
const ANSWER_MAX: Duration = Duration::from_secs(5);

pub(in crate::campaigns) struct JetStream {
    server: Arc<Mutex<Nats>>,
    url: String,
    version: String,
    /// Directly connected to the server.
    context: jetstream::Context,
    receiver: Arc<Mutex<Receiver>>,
}

/// What was read from the stream so far.
#[derive(Default)]
struct Receiver {
    position: u64,
    /// The ids since the stream was created. A new stream does not know the ids of the old one.
    ids: HashSet<EventId>,
    copies: usize,
}

impl Broker for JetStream {
    const NAME: &'static str = "JetStream";
    const NOT_COVERED: &'static [&'static str] = &["JetStream with several replicas"];
    const DROPS_COPIES: bool = true;
    const CLOCK_STEPS: bool = true;
    const ROUTES: &'static str = "[{ topic: 'orders.>', sink: events, stream: EVENTS }]";

    async fn start() -> Option<Self> {
        let server = Nats::start().await?;
        let url = server.url();
        let client = async_nats::ConnectOptions::new()
            .request_timeout(Some(Duration::from_secs(2)))
            .reconnect_delay_callback(|_| Duration::from_millis(100))
            .connect(&url)
            .await
            .unwrap();
        let version = client.server_info().version;
        let context = jetstream::new(client);
        context.create_stream(stream()).await.unwrap();
        Some(Self {
            server: Arc::new(Mutex::new(server)),
            url,
            version,
            context,
            receiver: Arc::default(),
        })
    }

    async fn version(&self) -> String {
        format!("nats-server {}", self.version)
    }

    async fn link(&self) -> (Option<Arc<Proxy>>, String) {
        let proxy = Proxy::in_front_of(&self.url).await;
        let url = proxy.through(&self.url);
        (Some(Arc::new(proxy)), url)
    }

    fn fail(&self, storm: &mut Storm, ledger: &Arc<Ledger>) {
        let server = Arc::clone(&self.server);
        storm.add(|source| fail_server(server, source));
        let (context, receiver) = (self.context.clone(), Arc::clone(&self.receiver));
        let ledger = Arc::clone(ledger);
        storm.add(|source| fail_stream(context, receiver, ledger, source));
    }

    async fn receive(&self, ledger: &Ledger) {
        let mut receiver = self.receiver.lock().await;
        until_answered(async || receiver.read_on(&self.context, ledger).await).await;
    }

    async fn copies(&self, _ledger: &Ledger) -> usize {
        self.receiver.lock().await.copies
    }
}

/// The configuration of the stream without faults.
fn stream() -> Config {
    Config {
        name: STREAM.to_owned(),
        subjects: vec!["orders.>".to_owned()],
        ..Config::default()
    }
}

impl Receiver {
    /// Passes new messages to the ledger. After an error, the next call continues where this one stopped.
    async fn read_on(&mut self, context: &jetstream::Context, ledger: &Ledger) -> Result<()> {
        tokio::time::timeout(ANSWER_MAX, self.read(context, ledger))
            .await
            .context("the stream was not read in time")?
    }

    async fn read(&mut self, context: &jetstream::Context, ledger: &Ledger) -> Result<()> {
        let stream = context.get_stream(STREAM).await?;
        let last = stream.cached_info().state.last_sequence;
        if self.position >= last {
            return Ok(());
        }
        let config = OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: self.position + 1,
            },
            ..OrderedConfig::default()
        };
        let mut messages = stream.create_consumer(config).await?.messages().await?;
        while self.position < last {
            let message = messages.next().await.context("the stream ended")??;
            let id = message
                .headers
                .as_ref()
                .and_then(|headers| headers.get("Nats-Msg-Id"));
            let id: EventId = id.context("a message without an id")?.as_str().into();
            let sequence = message.info().map_err(anyhow::Error::msg)?.stream_sequence;
            anyhow::ensure!(sequence > self.position, "the consumer went back");
            self.position = sequence;
            self.copies += usize::from(!self.ids.insert(id.clone()));
            ledger.seen(id);
        }
        Ok(())
    }

    fn start_over(&mut self) {
        self.position = 0;
        self.ids.clear();
    }
}

async fn fail_server(server: Arc<Mutex<Nats>>, mut source: Source) {
    while source.next(1_500..5_000).await {
        let mut server = server.lock().await;
        match source.rng().random_range(0..3) {
            0 => {
                let _lasting = source.begin("broker killed");
                server.kill().await;
                source.last(0..2_000).await;
                server.start_again().await;
            }
            1 => {
                let _lasting = source.begin("broker restarted");
                server.stop().await;
                source.last(0..2_000).await;
                server.start_again().await;
            }
            _ => {
                let _lasting = source.begin("broker frozen");
                server.pause().await;
                source.last(200..4_000).await;
                server.resume().await;
            }
        }
    }
}

async fn fail_stream(
    context: jetstream::Context,
    receiver: Arc<Mutex<Receiver>>,
    ledger: Arc<Ledger>,
    mut source: Source,
) {
    while source.next(2_000..6_000).await {
        if source.rng().random_bool(0.5) {
            let _lasting = source.begin("stream full");
            until_answered(async || fill(&context).await).await;
            source.last(300..3_000).await;
            until_answered(async || context.update_stream(stream()).await).await;
        } else {
            let _lasting = source.begin("stream missing");
            let mut receiver = receiver.lock().await;
            remove(&context, &mut receiver, &ledger).await;
            source.last(300..3_000).await;
            until_answered(async || context.create_stream(stream()).await).await;
        }
    }
}

/// Limits the stream to the messages that it already has.
async fn fill(context: &jetstream::Context) -> Result<()> {
    let messages = context.get_stream(STREAM).await?.cached_info().state.messages;
    let full = Config {
        max_messages: i64::try_from(messages)?.max(1),
        discard: DiscardPolicy::New,
        ..stream()
    };
    context.update_stream(full).await?;
    Ok(())
}

/// Deletes the stream without losing anything: it is first closed to publishers and read to its end.
async fn remove(context: &jetstream::Context, receiver: &mut Receiver, ledger: &Ledger) {
    let closed = Config {
        subjects: vec!["nothing.goes.here".to_owned()],
        ..stream()
    };
    until_answered(async || context.update_stream(closed.clone()).await).await;
    until_answered(async || receiver.read_on(context, ledger).await).await;
    until_answered(async || match context.delete_stream(STREAM).await {
        // An earlier attempt succeeded without an answer.
        Err(error) if error.to_string().contains("not found") => Ok(()),
        other => other.map(drop),
    })
    .await;
    receiver.start_over();
}
