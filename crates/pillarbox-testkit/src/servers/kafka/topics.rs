//! Creates and deletes topics, without going through a proxy of the clients' listener.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::super::postgres::blocking;
use super::{Kafka, client};

/// For a broker that may be away.
const ANSWER_MAX: Duration = Duration::from_secs(5);

impl Kafka {
    /// Creates a topic and waits until it has leaders.
    pub async fn create_topic(&self, name: &str, partitions: i32) {
        self.create_topic_with(name, partitions, &[]).await;
    }

    pub async fn create_topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> =
            client(&self.internal()).create().expect("an admin client");
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = settings
            .iter()
            .fold(topic, |topic, (setting, value)| topic.set(setting, value));
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
        let made = admin.create_topics([&topic], &options).await.expect("an answer");
        assert!(made[0].is_ok(), "cannot create {name}: {:?}", made[0]);
        let (internal, name) = (self.internal(), name.to_owned());
        blocking(move || has_leaders(&internal, &name, partitions)).await;
    }

    /// Deletes a topic with its contents. An error: the broker is away, or does not have the topic.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = client(&self.internal()).create()?;
        let options = AdminOptions::new()
            .request_timeout(Some(ANSWER_MAX))
            .operation_timeout(Some(ANSWER_MAX));
        let deleted = admin.delete_topics(&[name], &options).await?;
        match deleted.into_iter().next() {
            Some(Ok(_)) => Ok(()),
            other => bail!("cannot delete {name}: {other:?}"),
        }
    }

    /// Creates a topic; the broker may be away. An error: it is away, or it already has the topic.
    pub async fn try_create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = client(&self.internal()).create()?;
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let options = AdminOptions::new()
            .request_timeout(Some(ANSWER_MAX))
            .operation_timeout(Some(ANSWER_MAX));
        let made = admin.create_topics([&topic], &options).await?;
        match made.into_iter().next() {
            Some(Ok(_)) => Ok(()),
            other => bail!("cannot create {name}: {other:?}"),
        }
    }
}

/// The broker learns a moment later what the controller has created.
fn has_leaders(address: &str, topic: &str, partitions: i32) -> Result<()> {
    let client: BaseConsumer = client(address).create()?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let metadata = client.fetch_metadata(Some(topic), Duration::from_secs(5))?;
        let found = metadata.topics().iter().flat_map(|found| found.partitions());
        let led = found.filter(|partition| partition.leader() >= 0).count();
        if i32::try_from(led) == Ok(partitions) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{topic} has no leaders");
        std::thread::sleep(Duration::from_millis(10));
    }
}
