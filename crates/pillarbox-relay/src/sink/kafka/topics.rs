//! Compares the existing topics with the configuration.
//!
//! Asks for all topics and selects ours. Asking for one by name would create it, if brokers create topics
//! automatically.

mod admin;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use self::admin::Admin;
use super::{KafkaSink, outcome::misconfigured, producer::Producer};
use crate::sink::{Comparison, SinkError, StreamState, TopicSpec};

/// How long creating and changing may take: a cluster must agree on it.
const APPLY_MAX: Duration = Duration::from_secs(20);
const HEARD_MAX: Duration = Duration::from_secs(3);

/// A topic as it exists.
struct Found {
    partitions: usize,
    replication: usize,
    /// Requested only if the configuration has some.
    settings: BTreeMap<String, Setting>,
}

struct Setting {
    value: String,
    /// Set for this topic; not a default of the broker or of Kafka.
    own: bool,
}

/// Whether a broker answers. Missing topics are found by their events, because a missing topic must not stop the
/// others.
pub(super) async fn answers(producer: &Arc<Producer>, timeout: Duration) -> Result<(), SinkError> {
    all(producer, timeout).await.map(drop)
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

/// Looks at all topics first, so that an impossible change is reported before anything is changed.
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

/// Brokers learn of the controller's changes a moment later. Wait, so that the next look finds them.
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

/// Refuses what Kafka can't change, or what we do not change: fewer partitions, another replication.
fn changeable(spec: &TopicSpec, found: &Found) -> Result<(), SinkError> {
    let name = &spec.name;
    if let Some(fewer) = spec
        .partitions
        .filter(|wanted| (*wanted as usize) < found.partitions)
    {
        return Err(misconfigured(format!(
            "topic {name} has {} partitions and the configuration says {fewer}. Kafka can't remove partitions: correct the \
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
    fn each_difference_is_a_line_and_unset_options_are_not_compared() {
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
