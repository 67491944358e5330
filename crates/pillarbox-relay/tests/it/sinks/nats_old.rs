//! The oldest supported server.

use async_nats::jetstream;
use pillarbox_relay::{
    Sink,
    sink::{Comparison, Outcome, SinkErrorKind, StreamSpec, Streams},
};
use pillarbox_testkit::{
    contract::sink::{event, outgoing},
    servers::{Nats, NatsOptions, NatsVersion},
    sink_contract,
};

use super::nats::{Harness, failure, harness_on, open, spec, stored};

async fn server() -> Option<Nats> {
    let server = Nats::start_with(NatsOptions {
        version: NatsVersion::Old,
        ..NatsOptions::default()
    })
    .await?;
    let client = async_nats::connect(server.url()).await.unwrap();
    let version = client.server_info().version;
    assert!(version.starts_with("2.9."), "it is {version}");
    Some(server)
}

async fn harness() -> Option<Harness> {
    harness_on(server().await?).await
}

sink_contract!(harness);

#[tokio::test]
async fn an_old_server_accepts_a_batch_and_drops_copies() {
    let Some(server) = server().await else { return };
    let sink = open(&server.url(), vec![spec("S", "contract.>")]);
    sink.apply_streams().await.unwrap();
    sink.check().await.unwrap();
    let batch: Vec<_> = (0..500)
        .map(|n| outgoing(event(&format!("k{}", n % 7), n.to_string())))
        .collect();
    for _ in 0..2 {
        assert_eq!(sink.publish(&batch).await, vec![Outcome::Delivered; 500]);
    }
    let sent: Vec<_> = batch
        .iter()
        .map(|outgoing| outgoing.event.event.id.clone())
        .collect();
    let there: Vec<_> = stored(&server.url(), "S")
        .await
        .iter()
        .map(|e| e.id.clone())
        .collect();
    assert_eq!(there, sent, "each event once, in the order of the batch");
}

#[tokio::test]
async fn an_old_server_has_its_streams_compared_made_and_changed() {
    let Some(server) = server().await else { return };
    let state = async |sink: &dyn Streams| sink.check_streams().await.unwrap().remove(0).state;
    let sink = open(&server.url(), vec![spec("A", "a.>")]);
    assert_eq!(state(&sink).await, Comparison::Missing);
    sink.check().await.unwrap();
    sink.apply_streams().await.unwrap();
    assert_eq!(state(&sink).await, Comparison::Same);

    let wider = StreamSpec {
        subjects: vec!["a.>".into(), "aa.>".into()],
        ..spec("A", "")
    };
    let sink = open(&server.url(), vec![wider]);
    assert!(matches!(state(&sink).await, Comparison::Differs { .. }));
    sink.apply_streams().await.unwrap();
    assert_eq!(state(&sink).await, Comparison::Same);

    let jetstream = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let stream = jetstream.get_stream("A").await.unwrap();
    assert_eq!(stream.cached_info().config.subjects, ["a.>", "aa.>"]);
}

#[tokio::test]
async fn an_old_server_gives_the_same_errors_as_a_new_one() {
    let Some(server) = server().await else { return };
    let sink = open(&server.url(), vec![spec("A", "contract.>"), spec("B", "b.>")]);
    sink.apply_streams().await.unwrap();
    let mut nobody = event("a", "1");
    nobody.topic = "nobody.cares".into();
    let mut elsewhere = outgoing(event("b", "2"));
    elsewhere.stream = Some("B".into());
    let outcomes = sink
        .publish(&[outgoing(nobody), elsewhere, outgoing(event("c", "3"))])
        .await;
    assert_eq!(failure(&outcomes[0]).kind, SinkErrorKind::Unavailable);
    assert_eq!(failure(&outcomes[1]).kind, SinkErrorKind::MissingStream);
    assert_eq!(outcomes[2], Outcome::Delivered);
}
