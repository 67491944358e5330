//! Envelopes on real brokers, read with the bare clients and with an SDK that does not depend on Pillarbox.

use std::collections::BTreeMap;

use async_nats::jetstream;
use futures::StreamExt;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    connect::SinkOptions,
    envelope::{
        Envelope, Mode,
        shape::{Place, Shape, Value},
    },
    sink::{Outcome, Outgoing, kafka::KafkaSink},
};
use pillarbox_testkit::{
    cloudevents,
    contract::sink::outgoing,
    kafka,
    servers::{self, Nats},
};
use serde_json::{Value as Json, json};

use super::nats;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PAYLOAD: &str = r#"{"total": 12.50, "name":"Zoë"}"#;

/// The payload with the id as `messageId`, and two headers.
fn shape() -> Shape {
    let value = |text: &str| Value::parse(text).unwrap();
    Shape {
        body: [("*", "payload"), ("messageId", "id")]
            .map(|(place, text)| (Place::parse(place).unwrap(), value(text)))
            .into(),
        headers: [
            ("traceparent", "headers->traceparent"),
            ("version", "schema_version"),
            ("none", "user_id"),
        ]
        .map(|(name, text)| (name.to_owned(), value(text)))
        .into(),
    }
}

/// One event for each envelope, on this topic.
fn batch(topic: &str) -> Vec<Outgoing> {
    let cloud_events = |mode| Envelope::CloudEvents {
        mode,
        source: Some("/shop/orders".into()),
    };
    let envelopes = [
        Envelope::Raw,
        cloud_events(Mode::Binary),
        cloud_events(Mode::Structured),
        Envelope::Pillarbox,
        Envelope::Debezium,
        Envelope::Shape(shape().into()),
    ];
    envelopes
        .into_iter()
        .map(|envelope| {
            let event = Event::to(topic)
                .event_type("OrderPlaced")
                .aggregate("order", "o-1")
                .partition_key("customer 7")
                .payload(PAYLOAD)
                .header("traceparent", TRACE);
            Outgoing {
                envelope,
                ..outgoing(event)
            }
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_carries_every_envelope() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    server.create_topic("envelopes", 1).await;
    let sink = KafkaSink::open(&SinkOptions::new(server.url())).unwrap();
    let sent = batch("envelopes");
    assert_eq!(sink.publish(&sent).await, vec![Outcome::Delivered; 6]);
    let arrived = kafka::messages(&server.bootstrap(), "envelopes").await;
    let id = |n: usize| sent[n].event.event.id.to_string();
    for message in &arrived {
        assert_eq!(message.key.as_deref(), Some("customer 7"));
        assert_eq!(message.headers["traceparent"], TRACE);
    }
    let [raw, binary, structured, whole, debezium, shaped] = arrived.try_into().unwrap();
    assert_eq!(
        (&raw.payload[..], &raw.headers["Pillarbox-Id"]),
        (PAYLOAD.as_bytes(), &id(0))
    );
    let object: Json = serde_json::from_slice(&whole.payload).unwrap();
    assert_eq!(
        (&object["id"], &object["payload"]),
        (&json!(id(3)), &json!({"total": 12.50, "name": "Zoë"}))
    );
    let routed = [
        ("eventType", "OrderPlaced"),
        ("id", &id(4)),
        ("traceparent", TRACE),
    ];
    let routed: BTreeMap<_, _> = routed
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into();
    assert_eq!(
        (&debezium.payload[..], debezium.headers),
        (PAYLOAD.as_bytes(), routed)
    );

    assert_eq!(
        String::from_utf8(shaped.payload).unwrap(),
        format!(r#"{{"total":12.50,"name":"Zoë","messageId":"{}"}}"#, id(5))
    );
    let names: Vec<&str> = shaped.headers.keys().map(String::as_str).collect();
    assert_eq!(names, ["traceparent", "version"]);

    let message = |mode, received: kafka::Received| cloudevents::Message {
        mode,
        headers: received.headers,
        key: received.key.unwrap_or_default(),
        value: String::from_utf8(received.payload).unwrap(),
    };
    let messages = [message("binary", binary), message("structured", structured)];
    let Some(understood) = cloudevents::understood(&messages).await else {
        return;
    };
    for (n, event) in understood.iter().enumerate() {
        let attribute = |name: &str| event.attributes.get(name).map(String::as_str);
        assert_eq!(attribute("specversion"), Some("1.0"));
        assert_eq!(attribute("id"), Some(id(n + 1).as_str()));
        assert_eq!(attribute("source"), Some("/shop/orders"));
        assert_eq!(attribute("type"), Some("OrderPlaced"));
        assert_eq!(attribute("subject"), Some("o-1"));
        assert_eq!(attribute("time"), Some("2026-01-02T03:04:05Z"));
        assert_eq!(attribute("partitionkey"), Some("customer 7"));
        assert_eq!(attribute("traceparent"), Some(TRACE));
        assert_eq!(event.data, json!({"total": 12.50, "name": "Zoë"}));
    }
}

#[tokio::test]
async fn nats_carries_every_envelope() {
    let Some(server) = Nats::start().await else { return };
    let jetstream = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let config = jetstream::stream::Config {
        name: "ENVELOPES".into(),
        subjects: vec!["envelopes".into()],
        ..Default::default()
    };
    let stream = jetstream.create_stream(config).await.unwrap();
    let sent = batch("envelopes");
    let sink = nats::open(&server.url(), Vec::new());
    // They share a key, so they are sent one after the other.
    for outgoing in &sent {
        assert_eq!(
            sink.publish(std::slice::from_ref(outgoing)).await,
            [Outcome::Delivered]
        );
    }
    let consumer = stream
        .create_consumer(jetstream::consumer::pull::OrderedConfig::default())
        .await
        .unwrap();
    let messages: Vec<_> = consumer.messages().await.unwrap().take(6).collect().await;
    for (outgoing, message) in sent.iter().zip(messages) {
        let message = message.unwrap();
        let headers = message.headers.clone().unwrap();
        let header = |name: &str| headers.get(name).map(|value| value.as_str());
        let id = outgoing.event.event.id.to_string();
        assert_eq!(header("Nats-Msg-Id"), Some(id.as_str()));
        assert_eq!(header("traceparent"), Some(TRACE));
        let object = || -> Json { serde_json::from_slice(&message.payload).unwrap() };
        match &outgoing.envelope {
            Envelope::Raw => assert_eq!(header("Pillarbox-Event-Type"), Some("OrderPlaced")),
            Envelope::CloudEvents {
                mode: Mode::Binary, ..
            } => {
                assert_eq!(
                    (header("ce-id"), header("ce-partitionkey")),
                    (Some(id.as_str()), Some("customer%207"))
                );
                assert_eq!(header("content-type"), Some("application/json"));
                assert_eq!(&message.payload[..], PAYLOAD.as_bytes());
            }
            Envelope::CloudEvents { .. } => {
                assert_eq!(
                    (&object()["id"], &object()["data"]["name"]),
                    (&json!(id), &json!("Zoë"))
                );
            }
            Envelope::Pillarbox => assert_eq!(object()["topic"], "envelopes"),
            Envelope::Debezium => {
                assert_eq!(
                    (header("id"), header("eventType")),
                    (Some(id.as_str()), Some("OrderPlaced"))
                );
                assert_eq!(&message.payload[..], PAYLOAD.as_bytes());
            }
            Envelope::Shape(_) => {
                assert_eq!(
                    object(),
                    json!({ "total": 12.50, "name": "Zoë", "messageId": id })
                );
                assert_eq!((header("version"), header("none")), (Some("1"), None));
            }
        }
    }
}
