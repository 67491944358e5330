//! Kafka: killed, restarted, frozen, behind a bad network; its topic deleted.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use pillarbox_testkit::{
    kafka::Reader,
    ledger::Ledger,
    proxy::{Fault, Proxy, Reserved},
    servers::{self, KafkaOptions},
    storm::{LinkFaults, Source, Storm, break_link_once},
};
use rand::RngExt;
use tokio::sync::Mutex;

use super::Broker;
use crate::campaigns::{TOPIC, until_answered};

const PARTITIONS: i32 = 6;
/// The timeout of one request to a server that may be away.
const ANSWER_MAX: Duration = Duration::from_secs(5);

pub(in crate::campaigns) struct Kafka {
    server: Arc<Mutex<servers::Kafka>>,
    url: String,
    /// Shared by all relays, because the broker advertises one port to every client.
    link: Arc<Proxy>,
    reader: Arc<Mutex<Reader>>,
}

impl Broker for Kafka {
    const NAME: &'static str = "Kafka";
    const NOT_COVERED: &'static [&'static str] = &[
        "Kafka with several brokers",
        "Kafka on a disk that is full",
        "Kafka's link of one relay alone (all relays share it)",
        "Kafka beside a clock that steps: libfaketime does not reach the waits of Kafka's client",
    ];
    /// Kafka drops copies only within one producer.
    const DROPS_COPIES: bool = false;
    /// libfaketime changes the time that librdkafka reads, but not the `cnd_timedwait` that it waits with. So
    /// its threads would sleep for the whole step. No real clock does that.
    const CLOCK_STEPS: bool = false;
    const ROUTES: &'static str = "[{ topic: 'orders.>', sink: events }]";

    async fn start() -> Option<Self> {
        let port = Reserved::port().await;
        let options = KafkaOptions {
            advertised_port: Some(port.number()),
            ..KafkaOptions::default()
        };
        let server = servers::Kafka::start_with(options).await?;
        let link = port.start(([127, 0, 0, 1], server.port()).into());
        server.create_topic(TOPIC, PARTITIONS).await;
        let reader = Reader::new(&server.internal(), TOPIC);
        Some(Self {
            url: link.through(&server.url()),
            server: Arc::new(Mutex::new(server)),
            link: Arc::new(link),
            reader: Arc::new(Mutex::new(reader)),
        })
    }

    async fn version(&self) -> String {
        format!("Kafka {}", servers::Kafka::VERSION)
    }

    async fn link(&self) -> (Option<Arc<Proxy>>, String) {
        (None, self.url.clone())
    }

    fn fail(&self, storm: &mut Storm, ledger: &Arc<Ledger>) {
        let server = Arc::clone(&self.server);
        storm.add(|source| fail_server(server, source));
        let topic = Topic {
            server: Arc::clone(&self.server),
            link: Arc::clone(&self.link),
            reader: Arc::clone(&self.reader),
            ledger: Arc::clone(ledger),
        };
        storm.add(|source| topic.fail(source));
    }

    async fn receive(&self, ledger: &Ledger) {
        read_on(&self.reader, ledger).await;
    }

    async fn copies(&self, ledger: &Ledger) -> usize {
        ledger.verdict().duplicated
    }
}

/// Passes new messages to the ledger.
async fn read_on(reader: &Arc<Mutex<Reader>>, ledger: &Ledger) {
    until_answered(async || {
        let mut reader = Arc::clone(reader).lock_owned().await;
        let read = move || reader.read_on(ANSWER_MAX);
        for message in tokio::task::spawn_blocking(read).await?? {
            let id = message
                .headers
                .get("Pillarbox-Id")
                .context("a message without an id")?;
            ledger.seen(id);
        }
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

async fn fail_server(server: Arc<Mutex<servers::Kafka>>, mut source: Source) {
    while source.next(2_000..6_000).await {
        let mut server = server.lock().await;
        match source.rng().random_range(0..4) {
            0 => {
                let _lasting = source.begin("broker killed");
                server.kill().await;
                source.last(0..1_000).await;
                server.start_again().await;
            }
            1 => {
                let _lasting = source.begin("broker restarted");
                server.stop().await;
                source.last(0..1_000).await;
                server.start_again().await;
            }
            // Twice as often as the others: it needs no restart, so more of them fit in.
            _ => {
                let _lasting = source.begin("broker frozen");
                server.pause().await;
                source.last(200..4_000).await;
                server.resume().await;
            }
        }
    }
}

/// Faults of the link and of the topic come from one source: before the topic is deleted, it must be read to
/// its end, and the link keeps the relays from writing in the meantime.
struct Topic {
    server: Arc<Mutex<servers::Kafka>>,
    link: Arc<Proxy>,
    reader: Arc<Mutex<Reader>>,
    ledger: Arc<Ledger>,
}

impl Topic {
    async fn fail(self, mut source: Source) {
        let faults = LinkFaults {
            name: "link to the broker",
            calm: 300..1_500,
            length: 100..3_000,
        };
        while source.next(faults.calm.clone()).await {
            if source.rng().random_bool(0.2) {
                let _lasting = source.begin("topic missing");
                self.remove().await;
                source.last(300..3_000).await;
                until_answered(async || self.make().await).await;
            } else {
                break_link_once(&self.link, &faults, &mut source).await;
            }
        }
    }

    async fn remove(&self) {
        self.link.set(Fault::Refuse).await;
        // The broker may still have requests in its buffers. By the second read it has written them.
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            read_on(&self.reader, &self.ledger).await;
        }
        until_answered(async || self.delete().await).await;
        self.reader.lock().await.start_over();
        self.link.set(Fault::Pass).await;
    }

    /// An attempt without an answer may have succeeded.
    async fn delete(&self) -> Result<()> {
        match self.server.lock().await.delete_topic(TOPIC).await {
            Err(error) if error.to_string().contains("UnknownTopicOrPartition") => Ok(()),
            other => other,
        }
    }

    async fn make(&self) -> Result<()> {
        let made = self.server.lock().await.try_create_topic(TOPIC, PARTITIONS).await;
        match made {
            Err(error) if error.to_string().contains("TopicAlreadyExists") => Ok(()),
            other => other,
        }
    }
}
