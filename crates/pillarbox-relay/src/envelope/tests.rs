use std::collections::BTreeMap;

use pillarbox::Event;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const KAFKA: Binding = Binding {
    prefix: "ce_",
    escapes: false,
};
const NATS: Binding = Binding {
    prefix: "ce-",
    escapes: true,
};
use crate::StoredEvent;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PAYLOAD: &str = r#"{"total": 12.50, "items":[ ]}"#;

fn event() -> Event {
    Event::to("shop.orders")
        .event_type("OrderPlaced")
        .aggregate("order", "o-1")
        .payload(PAYLOAD)
        .partition_key("customer 7")
        .aggregate_version(3)
        .user_id("Zoë")
        .header("traceparent", TRACE)
        .header("correlation-id", "c-1")
}

fn outgoing(event: Event, envelope: Envelope) -> Outgoing {
    let stored = StoredEvent {
        seq: 1,
        lane: 0,
        attempts: 0,
        created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        event,
    };
    Outgoing {
        envelope,
        ..Outgoing::new(Arc::new(stored))
    }
}

fn cloud_events(mode: Mode) -> Envelope {
    Envelope::CloudEvents { mode, source: None }
}

fn headers(message: &Message<'_>) -> BTreeMap<String, String> {
    let headers: BTreeMap<String, String> = message
        .headers
        .iter()
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect();
    assert_eq!(headers.len(), message.headers.len(), "a name occurs twice");
    headers
}

fn of(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect()
}

#[test]
fn raw_is_the_payload_with_everything_else_beside_it() {
    let outgoing = outgoing(event().header("Pillarbox-Key", "forged"), Envelope::Raw);
    let message = message(&outgoing, KAFKA).unwrap();
    assert_eq!(
        (message.key, &message.body[..]),
        ("customer 7", PAYLOAD.as_bytes())
    );
    let id = outgoing.event.event.id.to_string();
    assert_eq!(
        headers(&message),
        of(&[
            ("Pillarbox-Id", &id),
            ("Pillarbox-Event-Type", "OrderPlaced"),
            ("Pillarbox-Schema-Version", "1"),
            ("Pillarbox-Aggregate-Type", "order"),
            ("Pillarbox-Aggregate-Id", "o-1"),
            ("Pillarbox-Aggregate-Version", "3"),
            ("Pillarbox-Key", "customer 7"),
            ("Pillarbox-Created-At", "2026-01-02T03:04:05Z"),
            ("Pillarbox-User-Id", "Zoë"),
            ("X-Pillarbox-Key", "forged"),
            ("traceparent", TRACE),
            ("correlation-id", "c-1"),
        ])
    );
}

#[test]
fn a_binary_cloud_event_has_its_attributes_as_headers() {
    let outgoing = outgoing(event().header("ce_id", "forged"), cloud_events(Mode::Binary));
    let message = message(&outgoing, KAFKA).unwrap();
    assert_eq!(&message.body[..], PAYLOAD.as_bytes());
    let id = outgoing.event.event.id.to_string();
    assert_eq!(
        headers(&message),
        of(&[
            ("content-type", "application/json"),
            ("ce_specversion", "1.0"),
            ("ce_id", &id),
            ("ce_source", "/order"),
            ("ce_type", "OrderPlaced"),
            ("ce_subject", "o-1"),
            ("ce_time", "2026-01-02T03:04:05Z"),
            ("ce_partitionkey", "customer 7"),
            ("ce_aggregatetype", "order"),
            ("ce_aggregateversion", "3"),
            ("ce_schemaversion", "1"),
            ("ce_userid", "Zoë"),
            ("ce_traceparent", TRACE),
            ("ce_correlationid", "c-1"),
            ("X-ce_id", "forged"),
            ("traceparent", TRACE),
            ("correlation-id", "c-1"),
        ])
    );
}

#[test]
fn a_producer_cannot_make_another_envelope_look_like_raw() {
    let envelopes = [
        Envelope::Raw,
        Envelope::Pillarbox,
        Envelope::Debezium,
        cloud_events(Mode::Binary),
        cloud_events(Mode::Structured),
    ];
    for envelope in envelopes {
        let outgoing = outgoing(event().header("pillarbox-event-type", "forged"), envelope);
        let headers = headers(&message(&outgoing, KAFKA).unwrap());
        assert_eq!(headers["X-pillarbox-event-type"], "forged", "{headers:?}");
        assert!(!headers.contains_key("pillarbox-event-type"), "{headers:?}");
    }
}

#[test]
fn over_nats_the_attributes_are_escaped_as_in_http() {
    let outgoing = outgoing(event().user_id("Zoë 100%"), cloud_events(Mode::Binary));
    let headers = headers(&message(&outgoing, NATS).unwrap());
    assert_eq!(headers["ce-userid"], "Zo%C3%AB%20100%25");
    assert_eq!(headers["ce-partitionkey"], "customer%207");
    assert_eq!(headers["ce-type"], "OrderPlaced");
}

#[test]
fn a_structured_cloud_event_is_one_object() {
    let envelope = Envelope::CloudEvents {
        mode: Mode::Structured,
        source: Some("https://shop.example/orders".into()),
    };
    let outgoing = outgoing(event(), envelope);
    let message = message(&outgoing, KAFKA).unwrap();
    let body = std::str::from_utf8(&message.body).unwrap();
    assert!(body.ends_with(&format!(r#""data":{PAYLOAD}}}"#)), "{body}");
    let object: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        object,
        json!({
            "specversion": "1.0", "id": outgoing.event.event.id, "source": "https://shop.example/orders",
            "type": "OrderPlaced", "subject": "o-1", "time": "2026-01-02T03:04:05Z", "partitionkey": "customer 7",
            "aggregatetype": "order", "aggregateversion": "3", "schemaversion": "1", "userid": "Zoë",
            "traceparent": TRACE, "correlationid": "c-1", "datacontenttype": "application/json",
            "data": {"total": 12.50, "items": []},
        })
    );
    let content_type = "application/cloudevents+json; charset=UTF-8";
    assert_eq!(headers(&message)["content-type"], content_type);
}

#[test]
fn a_source_that_is_made_of_a_type_is_a_path() {
    let event = Event::to("t").event_type("X").aggregate("a type/with ä", "1");
    let outgoing = outgoing(event, cloud_events(Mode::Binary));
    let headers = headers(&message(&outgoing, KAFKA).unwrap());
    assert_eq!(headers["ce_source"], "/a%20type%2Fwith%20%C3%A4");
}

#[test]
fn pillarbox_is_one_object_with_everything() {
    let outgoing = outgoing(event(), Envelope::Pillarbox);
    let message = message(&outgoing, KAFKA).unwrap();
    let mut object: Value = serde_json::from_slice(&message.body).unwrap();
    let fields = object.as_object_mut().unwrap();
    assert_eq!(fields.remove("seq"), Some(json!(1)));
    assert_eq!(fields.remove("created_at"), Some(json!("2026-01-02T03:04:05Z")));
    let back: Event = serde_json::from_value(object).unwrap();
    assert_eq!(back.payload(PAYLOAD), outgoing.event.event);
    assert!(String::from_utf8_lossy(&message.body).contains(PAYLOAD));
    assert_eq!(headers(&message)["traceparent"], TRACE);
}

#[test]
fn debezium_is_the_payload_with_its_id_and_type() {
    let outgoing = outgoing(event().header("ID", "forged"), Envelope::Debezium);
    let message = message(&outgoing, KAFKA).unwrap();
    assert_eq!(
        (message.key, &message.body[..]),
        ("customer 7", PAYLOAD.as_bytes())
    );
    let id = outgoing.event.event.id.to_string();
    assert_eq!(
        headers(&message),
        of(&[
            ("id", &id),
            ("eventType", "OrderPlaced"),
            ("X-ID", "forged"),
            ("traceparent", TRACE),
            ("correlation-id", "c-1"),
        ])
    );
}

#[test]
fn a_line_is_the_envelopes_object() {
    let line = |envelope: Envelope| -> Value {
        let mut text = Vec::new();
        line::write(&mut text, &outgoing(event().payload("{\n\"a\":\r\n1}"), envelope)).unwrap();
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(&text).unwrap()
    };
    let whole = line(Envelope::Raw);
    assert_eq!(
        (&whole["topic"], &whole["payload"]),
        (&json!("shop.orders"), &json!({"a": 1}))
    );
    for mode in [Mode::Binary, Mode::Structured] {
        let cloud = line(cloud_events(mode));
        assert_eq!(
            (&cloud["type"], &cloud["data"]),
            (&json!("OrderPlaced"), &json!({"a": 1}))
        );
    }
    let debezium = line(Envelope::Debezium);
    assert_eq!(
        (
            &debezium["key"],
            &debezium["headers"]["eventType"],
            &debezium["payload"]
        ),
        (&json!("customer 7"), &json!("OrderPlaced"), &json!({"a": 1}))
    );
}

#[test]
fn a_payload_that_is_not_json_is_refused_by_json_envelopes() {
    for envelope in [Envelope::Pillarbox, cloud_events(Mode::Structured)] {
        let outgoing = outgoing(event().payload("{torn"), envelope);
        let error = message(&outgoing, KAFKA).unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Invalid);
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(?s).*", name in "(?s).*") {
        let text = text.as_str();
        let event = Event::to(text).event_type(text).aggregate(text, text).header(name, text);
        for envelope in [Envelope::Raw, cloud_events(Mode::Binary), cloud_events(Mode::Structured), Envelope::Pillarbox, Envelope::Debezium] {
            let outgoing = outgoing(event.clone(), envelope);
            for binding in [KAFKA, NATS] {
                message(&outgoing, binding).unwrap();
            }
            line::write(&mut Vec::new(), &outgoing).unwrap();
        }
    }
}

#[test]
fn every_envelope_names_the_relays_span_and_a_cloudevent_also_the_producers() {
    const FIRST: &str = "00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-01";
    for envelope in [
        Envelope::Raw,
        cloud_events(Mode::Binary),
        cloud_events(Mode::Structured),
        Envelope::Pillarbox,
        Envelope::Debezium,
    ] {
        let outgoing = Outgoing {
            first_traceparent: Some(FIRST.into()),
            ..outgoing(event(), envelope.clone())
        };
        let message = message(&outgoing, KAFKA).unwrap();
        let headers = headers(&message);
        assert_eq!(headers["traceparent"], TRACE, "{envelope:?}");
        let body = String::from_utf8_lossy(&message.body);
        let first = headers.get("ce_traceparent").is_some_and(|text| text == FIRST) || body.contains(FIRST);
        let is_cloud_event = matches!(envelope, Envelope::CloudEvents { .. });
        assert_eq!(first, is_cloud_event, "{envelope:?}: {body}");
    }
}

#[test]
fn columns_that_an_event_carries_for_shapes_are_in_no_other_message() {
    let event = || event().header("row.secret", r#"{"a": 1}"#);
    let envelopes = [
        Envelope::Raw,
        cloud_events(Mode::Binary),
        cloud_events(Mode::Structured),
        Envelope::Pillarbox,
        Envelope::Debezium,
    ];
    for envelope in envelopes {
        let outgoing = outgoing(event(), envelope);
        let sent = message(&outgoing, KAFKA).unwrap();
        assert!(
            !format!("{:?}", sent.headers).contains("secret"),
            "{:?}",
            outgoing.envelope
        );
        assert!(
            !String::from_utf8_lossy(&sent.body).contains("secret"),
            "{:?}",
            outgoing.envelope
        );
    }
    let shape = shape::Shape {
        body: vec![(
            shape::Place::parse("*").unwrap(),
            shape::Value::parse("row->secret").unwrap(),
        )],
        ..shape::Shape::default()
    };
    let outgoing = outgoing(event(), Envelope::Shape(Arc::new(shape)));
    assert_eq!(message(&outgoing, KAFKA).unwrap().body, r#"{"a":1}"#);
}
