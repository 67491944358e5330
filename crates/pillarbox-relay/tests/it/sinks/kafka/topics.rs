//! Topics of the configuration: comparing, creating and changing them.

use std::collections::BTreeMap;

use pillarbox_relay::{
    Sink,
    connect::SinkOptions,
    sink::{Comparison, SinkErrorKind, StreamState, Streams, TopicSpec, kafka::KafkaSink},
};
use pillarbox_testkit::servers;
use uuid::Uuid;

use super::harness::{new_topic_with, options};

fn spec(name: &str, partitions: u32, settings: &[(&str, &str)]) -> TopicSpec {
    let setting = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    TopicSpec {
        name: name.to_owned(),
        partitions: Some(partitions),
        replication: Some(1),
        settings: settings.iter().map(setting).collect::<BTreeMap<_, _>>(),
    }
}

fn open(url: &str, topics: Vec<TopicSpec>) -> KafkaSink {
    KafkaSink::open(&SinkOptions {
        topics,
        ..options(url)
    })
    .unwrap()
}

fn states(states: Vec<StreamState>) -> Vec<Comparison> {
    states.into_iter().map(|state| state.state).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_compared_then_made_then_changed() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let name = format!("t-{}", Uuid::new_v4());
    let sink = open(
        &server.url(),
        vec![spec(&name, 2, &[("retention.ms", "1000000")])],
    );
    assert_eq!(states(sink.check_streams().await.unwrap()), [Comparison::Missing]);
    sink.check()
        .await
        .expect("a missing topic does not make the sink away");

    assert_eq!(states(sink.apply_streams().await.unwrap()), [Comparison::Missing]);
    assert_eq!(states(sink.check_streams().await.unwrap()), [Comparison::Same]);
    sink.check().await.unwrap();

    let wider = spec(
        &name,
        5,
        &[("retention.ms", "2000000"), ("cleanup.policy", "compact")],
    );
    let sink = open(&server.url(), vec![wider]);
    let Comparison::Differs { differences } = &sink.check_streams().await.unwrap()[0].state else {
        panic!()
    };
    assert_eq!(
        differences,
        &[
            "partitions: 2 there, 5 configured",
            "cleanup.policy: delete there, compact configured",
            "retention.ms: 1000000 there, 2000000 configured"
        ]
    );
    sink.check()
        .await
        .expect("differing settings are reported, but are no outage");
    sink.apply_streams().await.unwrap();
    assert_eq!(states(sink.check_streams().await.unwrap()), [Comparison::Same]);
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_keeps_unset_options_and_refuses_impossible_changes() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let name = new_topic_with(server, 3, &[("max.message.bytes", "7777")]).await;
    let sink = open(
        &server.url(),
        vec![spec(&name, 3, &[("retention.ms", "5000000")])],
    );
    sink.apply_streams().await.unwrap();
    let both = [("max.message.bytes", "7777"), ("retention.ms", "5000000")];
    let sink = open(&server.url(), vec![spec(&name, 3, &both)]);
    assert_eq!(states(sink.check_streams().await.unwrap()), [Comparison::Same]);

    let new = format!("t-{}", Uuid::new_v4());
    let sink = open(&server.url(), vec![spec(&new, 1, &[]), spec(&name, 2, &[])]);
    let error = sink.apply_streams().await.unwrap_err();
    assert!(error.message.contains("3 partitions"), "{error}");
    assert_eq!(
        states(sink.check_streams().await.unwrap())[0],
        Comparison::Missing,
        "nothing is created if one topic can't be created"
    );
    let sink = open(&server.url(), vec![spec(&new, 1, &[("no.such.setting", "1")])]);
    let error = sink.apply_streams().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
    assert!(error.message.contains("settings"), "{error}");
}
