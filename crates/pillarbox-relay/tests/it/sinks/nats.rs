//! NATS JetStream against a real server: the contract, and streams.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, pull},
    stream,
};
use async_trait::async_trait;
use futures::StreamExt;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    connect::SinkOptions,
    sink::{
        Comparison, Outcome, Outgoing, SinkError, SinkErrorKind, Storage, StreamSpec, Streams, nats::NatsSink,
    },
};
use pillarbox_testkit::{
    contract::sink::{Arrived, SinkHarness, event, outgoing},
    servers::Nats,
    sink_contract,
};

pub(super) fn spec(name: &str, subject: &str) -> StreamSpec {
    StreamSpec {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        replicas: 1,
        storage: Storage::File,
        duplicate_window: Duration::from_secs(120),
    }
}

pub(super) fn open(url: &str, streams: Vec<StreamSpec>) -> NatsSink {
    let options = SinkOptions {
        streams,
        publish_timeout: Duration::from_secs(3),
        ..SinkOptions::new(url)
    };
    NatsSink::open(&options).unwrap()
}

/// Everything in the stream, read with the bare client.
pub(super) async fn stored(url: &str, stream: &str) -> Vec<Arrived> {
    stored_for(async_nats::connect(url).await.unwrap(), stream).await
}

/// The same, for a client that has already logged in.
pub(super) async fn stored_for(client: async_nats::Client, stream: &str) -> Vec<Arrived> {
    let jetstream = jetstream::new(client);
    let mut stream = jetstream.get_stream(stream).await.unwrap();
    let count = stream.info().await.unwrap().state.messages;
    let consumer = stream
        .create_consumer(pull::Config {
            // Without acknowledgements, a consumer receives at most a thousand messages, unless its policy
            // needs none.
            ack_policy: AckPolicy::None,
            ..Default::default()
        })
        .await
        .unwrap();
    let messages = consumer.stream().messages().await.unwrap();
    let messages = messages.take(usize::try_from(count).unwrap()).map(|message| {
        let message = message.unwrap().message;
        let headers = message.headers.unwrap_or_default();
        let text = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_string())
                .unwrap_or_default()
        };
        Arrived {
            id: text("Nats-Msg-Id").parse().unwrap(),
            key: text("Pillarbox-Key"),
            event_type: text("Pillarbox-Event-Type"),
            aggregate: (text("Pillarbox-Aggregate-Type"), text("Pillarbox-Aggregate-Id")),
            aggregate_version: text("Pillarbox-Aggregate-Version").parse().ok(),
            headers: headers
                .iter()
                .map(|(name, values)| (name.to_string(), values[0].to_string()))
                .collect(),
            payload: message.payload,
        }
    });
    tokio::time::timeout(Duration::from_secs(20), messages.collect())
        .await
        .unwrap()
}

pub(super) struct Harness {
    server: Nats,
    sink: Arc<NatsSink>,
}

#[async_trait]
impl SinkHarness for Harness {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn arrived(&mut self) -> Option<Vec<Arrived>> {
        Some(stored(&self.server.url(), "CONTRACT").await)
    }

    fn invalid(&self) -> Option<Event> {
        Some(event("bad", "0").topic("contract..event"))
    }

    async fn stop(&mut self) -> bool {
        self.server.stop().await;
        true
    }

    async fn start_again(&mut self) {
        self.server.start_again().await;
    }
}

async fn harness() -> Option<Harness> {
    harness_on(Nats::start().await?).await
}

pub(super) async fn harness_on(server: Nats) -> Option<Harness> {
    let sink = Arc::new(open(&server.url(), vec![spec("CONTRACT", "contract.>")]));
    sink.apply_streams().await.unwrap();
    Some(Harness { server, sink })
}

sink_contract!(harness);

pub(super) fn failure(outcome: &Outcome) -> &SinkError {
    match outcome {
        Outcome::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn streams_are_compared_then_made_then_changed() {
    let Some(server) = Nats::start().await else { return };
    let sink = open(&server.url(), vec![spec("A", "a.>"), spec("B", "b.>")]);
    let states = |states: Vec<pillarbox_relay::sink::StreamState>| {
        states.into_iter().map(|s| s.state).collect::<Vec<_>>()
    };
    assert_eq!(
        states(sink.check_streams().await.unwrap()),
        [Comparison::Missing, Comparison::Missing]
    );
    sink.check()
        .await
        .expect("a missing stream does not make the sink away");

    assert_eq!(
        states(sink.apply_streams().await.unwrap()),
        [Comparison::Missing, Comparison::Missing]
    );
    assert_eq!(
        states(sink.check_streams().await.unwrap()),
        [Comparison::Same, Comparison::Same]
    );
    sink.check().await.unwrap();

    let wider = StreamSpec {
        subjects: vec!["a.>".into(), "aa.>".into()],
        duplicate_window: Duration::from_secs(60),
        ..spec("A", "")
    };
    let sink = open(&server.url(), vec![wider]);
    let Comparison::Differs { differences } = &sink.check_streams().await.unwrap()[0].state else {
        panic!()
    };
    assert_eq!(differences[0], "subjects: a.> there, a.> aa.> configured");
    assert_eq!(differences.len(), 2, "{differences:?}");
    sink.check().await.expect("differing settings are only told");
    sink.apply_streams().await.unwrap();
    assert_eq!(states(sink.check_streams().await.unwrap()), [Comparison::Same]);
}

#[tokio::test]
async fn applying_keeps_unset_options_and_refuses_another_storage() {
    let Some(server) = Nats::start().await else { return };
    let jetstream = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let made = stream::Config {
        name: "A".into(),
        subjects: vec!["a.>".into()],
        max_messages: 77,
        ..Default::default()
    };
    jetstream.create_stream(made).await.unwrap();
    open(&server.url(), vec![spec("A", "z.>")])
        .apply_streams()
        .await
        .unwrap();
    let config = jetstream
        .get_stream("A")
        .await
        .unwrap()
        .cached_info()
        .config
        .clone();
    assert_eq!(
        (config.max_messages, config.subjects),
        (77, vec!["z.>".to_owned()])
    );

    let memory = StreamSpec {
        storage: Storage::Memory,
        ..spec("A", "z.>")
    };
    let error = open(&server.url(), vec![spec("NEW", "new.>"), memory])
        .apply_streams()
        .await
        .unwrap_err();
    assert!(error.message.contains("storage"), "{error}");
    assert!(
        jetstream.get_stream("NEW").await.is_err(),
        "nothing is created if one stream can't be created"
    );
}

#[tokio::test]
async fn a_subject_without_a_stream_or_of_another_stream_gives_advice() {
    let Some(server) = Nats::start().await else { return };
    let sink = open(&server.url(), vec![spec("A", "contract.>"), spec("B", "b.>")]);
    sink.apply_streams().await.unwrap();
    let nobody = outgoing(event("a", "1").topic("nobody.cares"));
    let elsewhere = Outgoing {
        stream: Some("B".into()),
        ..outgoing(event("b", "2"))
    };
    let right = Outgoing {
        stream: Some("A".into()),
        ..outgoing(event("c", "3"))
    };
    let outcomes = sink.publish(&[nobody, elsewhere, right]).await;
    let error = failure(&outcomes[0]);
    assert_eq!((error.kind, error.in_doubt), (SinkErrorKind::Unavailable, false));
    assert!(
        error.message.contains("nobody.cares") && error.message.contains("streams apply"),
        "{error}"
    );
    let error = failure(&outcomes[1]);
    assert_eq!(
        (error.kind, error.in_doubt),
        (SinkErrorKind::MissingStream, false)
    );
    assert!(error.message.contains("stream A, not to B"), "{error}");
    assert_eq!(outcomes[2], Outcome::Delivered);
    assert_eq!(stored(&server.url(), "A").await.len(), 1);
}

#[tokio::test]
async fn a_full_stream_is_full_and_its_own_size_limit_is_too_large() {
    let Some(server) = Nats::start().await else { return };
    let jetstream = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let full = stream::Config {
        name: "FULL".into(),
        subjects: vec!["contract.event".into()],
        max_messages: 1,
        discard: stream::DiscardPolicy::New,
        max_message_size: 2000,
        ..Default::default()
    };
    jetstream.create_stream(full).await.unwrap();
    let sink = open(&server.url(), vec![]);
    let large = format!("\"{}\"", "x".repeat(3000));
    let outcomes = sink
        .publish(&[
            outgoing(event("a", "1")),
            outgoing(event("b", "2")),
            outgoing(event("c", large)),
        ])
        .await;
    assert_eq!(outcomes[0], Outcome::Delivered);
    assert_eq!(failure(&outcomes[1]).kind, SinkErrorKind::Full);
    assert_eq!(failure(&outcomes[2]).kind, SinkErrorKind::TooLarge);
}
