//! Requests about one topic, and changes of it.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    admin::{
        AdminClient, AdminOptions, AlterConfig, ConfigEntry, ConfigSource, NewPartitions, NewTopic,
        ResourceSpecifier, TopicReplication,
    },
    client::DefaultClientContext,
    config::FromClientConfig,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::task::spawn_blocking;

use super::{
    super::{
        KafkaSink,
        outcome::{misconfigured, missing_topic},
        settings::{connection, plain},
    },
    Found, Setting,
};
use crate::sink::{SinkError, SinkErrorKind, TopicSpec};

/// The client for changes of the cluster.
pub(super) struct Admin {
    client: Option<AdminClient<DefaultClientContext>>,
    options: AdminOptions,
}

impl Admin {
    pub(super) fn open(sink: &KafkaSink, timeout: Duration) -> Result<Self, SinkError> {
        let client = AdminClient::from_config(&connection(&sink.address, timeout))
            .map_err(|error| misconfigured(format!("can't create the Kafka client: {}", plain(&error))))?;
        let options = AdminOptions::new()
            .request_timeout(Some(timeout))
            .operation_timeout(Some(timeout));
        Ok(Self {
            client: Some(client),
            options,
        })
    }

    fn client(&self) -> &AdminClient<DefaultClientContext> {
        match &self.client {
            Some(client) => client,
            None => unreachable!("only drop takes it"),
        }
    }

    pub(super) async fn settings(&self, topic: &str) -> Result<BTreeMap<String, Setting>, SinkError> {
        let asked = [ResourceSpecifier::Topic(topic)];
        let answers = self.client().describe_configs(&asked, &self.options).await;
        let answer = one(answers, "settings", topic)?.map_err(|code| failed("settings", topic, code))?;
        let setting = |entry: ConfigEntry| {
            let own = entry.source == ConfigSource::DynamicTopic;
            let value = entry.value.unwrap_or_default();
            (entry.name, Setting { value, own })
        };
        Ok(answer.entries.into_iter().map(setting).collect())
    }

    pub(super) async fn make(&self, spec: &TopicSpec) -> Result<(), SinkError> {
        let count = |count: Option<u32>| count.and_then(|count| i32::try_from(count).ok()).unwrap_or(-1);
        let mut topic = NewTopic::new(
            &spec.name,
            count(spec.partitions),
            TopicReplication::Fixed(count(spec.replication)),
        );
        for (name, value) in &spec.settings {
            topic = topic.set(name, value);
        }
        let answers = self.client().create_topics(&[topic], &self.options).await;
        match one(answers, "making", &spec.name)? {
            // Somebody else has created it.
            Ok(_) | Err((_, Code::TopicAlreadyExists)) => Ok(()),
            Err((_, code)) => Err(failed("making", &spec.name, code)),
        }
    }

    pub(super) async fn change(&self, spec: &TopicSpec, found: &Found) -> Result<(), SinkError> {
        if let Some(more) = spec
            .partitions
            .filter(|wanted| *wanted as usize > found.partitions)
        {
            let partitions = [NewPartitions::new(&spec.name, more as usize)];
            let answers = self.client().create_partitions(&partitions, &self.options).await;
            one(answers, "partitions", &spec.name)?
                .map_err(|(_, code)| failed("partitions", &spec.name, code))?;
        }
        let differs = |(name, value): (&String, &String)| {
            found.settings.get(name).is_none_or(|there| there.value != *value)
        };
        if !spec.settings.iter().any(differs) {
            return Ok(());
        }
        // Settings that are not named here go back to their defaults, so those that somebody else set are named as
        // well.
        let mut all: BTreeMap<&str, &str> = BTreeMap::new();
        all.extend(
            found
                .settings
                .iter()
                .filter(|(_, there)| there.own)
                .map(|(name, there)| (&**name, &*there.value)),
        );
        all.extend(spec.settings.iter().map(|(name, value)| (&**name, &**value)));
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(&spec.name));
        for (name, value) in all {
            change = change.set(name, value);
        }
        let answers = self.client().alter_configs(&[change], &self.options).await;
        one(answers, "settings", &spec.name)?
            .map(drop)
            .map_err(|(_, code)| failed("settings", &spec.name, code))
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        // Dropping the client waits for its thread.
        let client = self.client.take();
        spawn_blocking(move || drop(client));
    }
}

/// The one answer to a request about one topic.
fn one<T>(answers: Result<Vec<T>, KafkaError>, what: &str, topic: &str) -> Result<T, SinkError> {
    let answers = answers.map_err(|error| match error {
        KafkaError::AdminOp(code) => failed(what, topic, code),
        other => SinkError::new(
            SinkErrorKind::Unavailable,
            format!("{what} of topic {topic}: {}", plain(&other)),
        ),
    })?;
    answers.into_iter().next().ok_or_else(|| {
        SinkError::new(
            SinkErrorKind::Unavailable,
            format!("{what} of topic {topic}: Kafka did not answer"),
        )
    })
}

fn failed(what: &str, topic: &str, code: Code) -> SinkError {
    let kind = match code {
        Code::OperationTimedOut | Code::RequestTimedOut | Code::TimedOutQueue => SinkErrorKind::Timeout,
        Code::BrokerTransportFailure | Code::AllBrokersDown => SinkErrorKind::Unreachable,
        Code::NotController | Code::BrokerNotAvailable | Code::LeaderNotAvailable => {
            SinkErrorKind::Unavailable
        }
        Code::UnknownTopicOrPartition => return missing_topic(topic),
        _ => SinkErrorKind::Misconfigured,
    };
    let hint = match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            ". The user needs DescribeConfigs on the topic to compare its settings; Create, Alter and AlterConfigs to make and \
             change it"
        }
        Code::InvalidReplicationFactor => ". Are there enough brokers?",
        Code::InvalidConfig => ". Check the names and values under `settings`",
        _ => "",
    };
    SinkError::new(kind, format!("{what} of topic {topic}: {code}{hint}"))
}
