//! Topics there, compared with those in the configuration.
//!
//! All topics are asked for and ours are picked out: asking for one by name would make it, where brokers make what they are
//! asked for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rdkafka::{
    admin::{
        AdminClient, AdminOptions, AlterConfig, ConfigEntry, ConfigSource, NewPartitions, NewTopic,
        ResourceSpecifier, TopicReplication,
    },
    client::DefaultClientContext,
    config::FromClientConfig,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    KafkaSink,
    outcome::{misconfigured, missing_topic},
    producer::{Producer, connection, plain},
};
use crate::sink::{Comparison, SinkError, SinkErrorKind, StreamState, TopicSpec};

/// How long making and changing may take: a cluster has to agree on it.
const APPLY_MAX: Duration = Duration::from_secs(20);
const HEARD_MAX: Duration = Duration::from_secs(3);

/// A topic as it is there.
struct Found {
    partitions: usize,
    replication: usize,
    /// Asked for only where the configuration has some.
    settings: BTreeMap<String, Setting>,
}

struct Setting {
    value: String,
    /// Set for this topic, not the broker's or Kafka's default.
    own: bool,
}

/// A broker answers, and has every topic of the configuration. How they are set is only looked at by
/// `pillarbox topics check`, which needs more rights.
pub(super) async fn check(
    producer: &Arc<Producer>,
    specs: &[TopicSpec],
    timeout: Duration,
) -> Result<(), SinkError> {
    let there = all(producer, timeout).await?;
    match specs.iter().find(|spec| !there.contains_key(&spec.name)) {
        Some(missing) => Err(missing_topic(&missing.name)),
        None => Ok(()),
    }
}

/// Partitions and replication of every topic.
async fn all(
    producer: &Arc<Producer>,
    timeout: Duration,
) -> Result<BTreeMap<String, (usize, usize)>, SinkError> {
    producer
        .metadata(None, timeout, |metadata| {
            let topics = metadata.topics().iter().filter(|topic| topic.error().is_none());
            topics
                .map(|topic| {
                    let partitions = topic.partitions();
                    let replication = partitions.first().map_or(0, |first| first.replicas().len());
                    (topic.name().to_owned(), (partitions.len(), replication))
                })
                .collect()
        })
        .await
}

pub(super) async fn compare_all(sink: &KafkaSink) -> Result<Vec<StreamState>, SinkError> {
    let found = find_all(sink, sink.answer_within()).await?;
    Ok(states(&sink.topics, &found))
}

/// Looks at all of them first: what can't be changed shows before anything is.
pub(super) async fn apply_all(sink: &KafkaSink) -> Result<Vec<StreamState>, SinkError> {
    let found = find_all(sink, sink.answer_within()).await?;
    for (spec, found) in sink.topics.iter().zip(&found) {
        if let Some(found) = found {
            changeable(spec, found)?;
        }
    }
    let admin = Admin::open(sink, APPLY_MAX)?;
    for (spec, found) in sink.topics.iter().zip(&found) {
        match found {
            None => admin.make(spec).await?,
            Some(found) => admin.change(spec, found).await?,
        }
    }
    heard_of(sink).await;
    Ok(states(&sink.topics, &found))
}

/// What the controller has done, brokers hear of a moment later: whoever looks next should find it.
async fn heard_of(sink: &KafkaSink) {
    let until = Instant::now() + HEARD_MAX;
    while Instant::now() < until {
        if let Ok(found) = find_all(sink, sink.answer_within()).await
            && states(&sink.topics, &found)
                .iter()
                .all(|state| state.state == Comparison::Same)
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn find_all(sink: &KafkaSink, timeout: Duration) -> Result<Vec<Option<Found>>, SinkError> {
    let there = all(&sink.producer()?, timeout).await?;
    let mut admin = None;
    let mut all_found = Vec::with_capacity(sink.topics.len());
    for spec in &sink.topics {
        let Some(&(partitions, replication)) = there.get(&spec.name) else {
            all_found.push(None);
            continue;
        };
        let mut found = Found {
            partitions,
            replication,
            settings: BTreeMap::new(),
        };
        if !spec.settings.is_empty() {
            let asked = match admin.take() {
                Some(admin) => admin,
                None => Admin::open(sink, timeout)?,
            };
            found.settings = asked.settings(&spec.name).await?;
            admin = Some(asked);
        }
        all_found.push(Some(found));
    }
    Ok(all_found)
}

fn states(specs: &[TopicSpec], found: &[Option<Found>]) -> Vec<StreamState> {
    let state = |(spec, found): (&TopicSpec, &Option<Found>)| StreamState {
        name: spec.name.clone(),
        state: match found.as_ref().map(|found| differences(spec, found)) {
            None => Comparison::Missing,
            Some(differences) if differences.is_empty() => Comparison::Same,
            Some(differences) => Comparison::Differs { differences },
        },
    };
    specs.iter().zip(found).map(state).collect()
}

fn differences(spec: &TopicSpec, found: &Found) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |setting: &str, there: &str, configured: &str| {
        if there != configured {
            differences.push(format!("{setting}: {there} there, {configured} configured"));
        }
    };
    let counts = [
        ("partitions", found.partitions, spec.partitions),
        ("replication", found.replication, spec.replication),
    ];
    for (name, there, configured) in counts {
        if let Some(configured) = configured {
            compare(name, &there.to_string(), &configured.to_string());
        }
    }
    for (name, configured) in &spec.settings {
        let there = found
            .settings
            .get(name)
            .map_or("nothing", |setting| &setting.value);
        compare(name, there, configured);
    }
    differences
}

/// What Kafka can't change, or we would not: fewer partitions, another replication.
fn changeable(spec: &TopicSpec, found: &Found) -> Result<(), SinkError> {
    let name = &spec.name;
    if let Some(fewer) = spec
        .partitions
        .filter(|wanted| (*wanted as usize) < found.partitions)
    {
        return Err(misconfigured(format!(
            "topic {name} has {} partitions and the configuration says {fewer}. Kafka can't take partitions away: correct the \
             configuration, or copy the topic to a new one",
            found.partitions,
        )));
    }
    if let Some(other) = spec
        .replication
        .filter(|wanted| *wanted as usize != found.replication)
    {
        return Err(misconfigured(format!(
            "topic {name} is replicated {} times and the configuration says {other}. Correct the configuration, or reassign the \
             partitions (kafka-reassign-partitions)",
            found.replication,
        )));
    }
    Ok(())
}

/// The client for what changes a cluster.
struct Admin {
    client: Option<AdminClient<DefaultClientContext>>,
    options: AdminOptions,
}

impl Admin {
    fn open(sink: &KafkaSink, timeout: Duration) -> Result<Self, SinkError> {
        let client = AdminClient::from_config(&connection(&sink.address, timeout))
            .map_err(|error| misconfigured(format!("the Kafka client can't be made: {}", plain(&error))))?;
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

    async fn settings(&self, topic: &str) -> Result<BTreeMap<String, Setting>, SinkError> {
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

    async fn make(&self, spec: &TopicSpec) -> Result<(), SinkError> {
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
            // Somebody else was quicker.
            Ok(_) | Err((_, Code::TopicAlreadyExists)) => Ok(()),
            Err((_, code)) => Err(failed("making", &spec.name, code)),
        }
    }

    async fn change(&self, spec: &TopicSpec, found: &Found) -> Result<(), SinkError> {
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
        // What is not named here goes back to its default, so what somebody else set is named as well.
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
        // It waits for its thread.
        let client = self.client.take();
        spawn_blocking(move || drop(client));
    }
}

/// The one answer to a question about one topic.
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
            format!("{what} of topic {topic}: Kafka gave no answer"),
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
        Code::InvalidReplicationFactor => ". Are there so many brokers?",
        Code::InvalidConfig => ". Check the names and values under `settings`",
        _ => "",
    };
    SinkError::new(kind, format!("{what} of topic {topic}: {code}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(partitions: Option<u32>, replication: Option<u32>, retention: &str) -> TopicSpec {
        TopicSpec {
            name: "orders".into(),
            partitions,
            replication,
            settings: [("retention.ms".to_owned(), retention.to_owned())].into(),
        }
    }

    fn found() -> Found {
        let setting = Setting {
            value: "1000".into(),
            own: true,
        };
        Found {
            partitions: 6,
            replication: 1,
            settings: [("retention.ms".to_owned(), setting)].into(),
        }
    }

    #[test]
    fn a_difference_is_a_line_of_its_own_and_what_is_left_out_is_not_compared() {
        assert_eq!(differences(&spec(None, None, "1000"), &found()), [""; 0]);
        assert_eq!(
            differences(&spec(Some(12), Some(3), "2000"), &found()),
            [
                "partitions: 6 there, 12 configured",
                "replication: 1 there, 3 configured",
                "retention.ms: 1000 there, 2000 configured"
            ]
        );
    }

    #[test]
    fn fewer_partitions_and_another_replication_are_refused() {
        assert!(changeable(&spec(Some(12), Some(1), ""), &found()).is_ok());
        let fewer = changeable(&spec(Some(3), None, ""), &found()).unwrap_err();
        assert!(fewer.message.contains("6 partitions"), "{fewer}");
        assert!(changeable(&spec(None, Some(3), ""), &found()).is_err());
    }
}
