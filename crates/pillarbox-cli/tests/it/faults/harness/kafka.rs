//! The same scene with Kafka instead of NATS.

use pillarbox_testkit::{
    kafka,
    ledger::Ledger,
    servers::{self, Kafka},
};

use super::{Config, Scene};

/// The topic of [`super::event`].
pub(in super::super) const TOPIC: &str = "orders.placed";

impl Config {
    pub(in super::super) fn to_kafka(database: &str, sink: &str) -> Self {
        Self {
            routes: "[{ topic: 'orders.>', sink: events }]".into(),
            streams: "[]".into(),
            ..Self::new(database, sink)
        }
    }
}

impl Scene {
    /// A new database on the shared server, and a private Kafka. `None`: not installed.
    pub(in super::super) async fn before_kafka(adjust: impl FnOnce(&mut Config)) -> Option<(Self, Kafka)> {
        let postgres = servers::postgres().await?;
        let kafka = Kafka::start().await?;
        kafka.create_topic(TOPIC, 6).await;
        let mut config = Config::to_kafka(&postgres.database().await, &kafka.url());
        adjust(&mut config);
        let scene = Self::with(config);
        scene.done(&["migrate"]).await;
        scene.make_counters().await;
        Some((scene, kafka))
    }

    /// Checks that the topic contains every committed event in order, and nothing else. Kafka drops no
    /// copies; returns their number.
    pub(in super::super) async fn assert_whole_in(&self, kafka: &Kafka) -> usize {
        self.settled().await;
        assert_whole_in(kafka, &self.ledger).await
    }
}

/// The same, after everything was settled.
pub(in super::super) async fn assert_whole_in(kafka: &Kafka, ledger: &Ledger) -> usize {
    for message in kafka::messages(&kafka.bootstrap(), TOPIC).await {
        let id = message.headers.get("Pillarbox-Id");
        let id = id.unwrap_or_else(|| panic!("a message without an id: {message:?}"));
        ledger.seen(id);
    }
    let verdict = ledger.verdict();
    assert!(verdict.is_whole(), "{verdict}");
    assert!(
        verdict.committed > 0,
        "no event was committed: the test proves nothing"
    );
    verdict.duplicated
}
