use proptest::prelude::*;

use super::*;

const ID: &str = "0199a5f0-0000-7000-8000-000000000001";

fn message(headers: &[(&str, &str)], body: &str) -> Message {
    Message {
        lane: 0,
        position: 1,
        topic: "shop.orders".into(),
        partition: None,
        key: None,
        headers: headers
            .iter()
            .map(|(name, text)| (name.to_string(), Bytes::from(text.to_string())))
            .collect(),
        body: Bytes::from(body.to_owned()),
        room: None,
    }
}

const RAW: [(&str, &str); 9] = [
    ("Nats-Msg-Id", ID),
    ("Pillarbox-Event-Type", "OrderPlaced"),
    ("Pillarbox-Schema-Version", "2"),
    ("Pillarbox-Aggregate-Type", "order"),
    ("Pillarbox-Aggregate-Id", "o-1"),
    ("Pillarbox-Aggregate-Version", "3"),
    ("Pillarbox-Key", "customer 7"),
    ("Pillarbox-Created-At", "2026-01-02T03:04:05Z"),
    ("traceparent", "00-x"),
];

#[test]
fn the_payload_with_everything_else_beside_it() {
    let received = Received::read(&message(&RAW, r#"{"total": 12.50}"#)).unwrap();
    let event = &received.event;
    assert_eq!(event.id.to_string(), ID);
    assert_eq!(
        (event.topic.as_str(), event.event_type.as_str()),
        ("shop.orders", "OrderPlaced")
    );
    assert_eq!((event.schema_version, event.aggregate_version), (2, Some(3)));
    assert_eq!((event.aggregate_id.as_str(), event.key()), ("o-1", "customer 7"));
    assert_eq!(&event.payload[..], br#"{"total": 12.50}"#);
    assert_eq!(
        event.headers,
        BTreeMap::from([("traceparent".into(), "00-x".into())])
    );
    assert_eq!(received.created_at, Some("2026-01-02T03:04:05Z".parse().unwrap()));
}

#[test]
fn one_object_with_everything() {
    let event = Event::to("shop.orders")
        .event_type("OrderPlaced")
        .aggregate("order", "o-1")
        .payload(r#"{"total": 12.50, "items":[ ]}"#)
        .aggregate_version(3)
        .header("traceparent", "00-x");
    let text = serde_json::to_string(&event).unwrap();
    let body = text.replacen('{', r#"{"seq":7,"created_at":"2026-01-02T03:04:05Z","#, 1);
    let received = Received::read(&message(&[("content-type", "application/json")], &body)).unwrap();
    assert_eq!(received.event, event);
    assert_eq!(received.created_at, Some("2026-01-02T03:04:05Z".parse().unwrap()));
}

#[test]
fn cloud_events_of_both_kinds() {
    let binary = message(
        &[
            ("content-type", "application/json"),
            ("ce-specversion", "1.0"),
            ("ce-id", ID),
            ("ce-type", "OrderPlaced"),
            ("ce-subject", "o-1"),
            ("ce-partitionkey", "customer%207"),
            ("ce-aggregatetype", "order"),
            ("ce-aggregateversion", "3"),
            ("ce-correlationid", "c-1"),
        ],
        r#"{"total":1}"#,
    );
    let structured = message(
        &[("content-type", "application/cloudevents+json; charset=UTF-8")],
        &format!(
            r#"{{"specversion":"1.0","id":"{ID}","type":"OrderPlaced","subject":"o-1","partitionkey":"customer 7",
                "aggregatetype":"order","aggregateversion":"3","correlationid":"c-1","data":{{"total":1}}}}"#
        ),
    );
    for message in [binary, structured] {
        let received = Received::read(&message).unwrap();
        let event = &received.event;
        assert_eq!(
            (event.id.to_string().as_str(), event.event_type.as_str()),
            (ID, "OrderPlaced")
        );
        assert_eq!(
            (event.aggregate_type.as_str(), event.aggregate_id.as_str()),
            ("order", "o-1")
        );
        assert_eq!((event.key(), event.aggregate_version), ("customer 7", Some(3)));
        assert_eq!(&event.payload[..], br#"{"total":1}"#);
        assert_eq!(event.headers["correlation-id"], "c-1");
    }
}

#[test]
fn an_event_of_the_outbox_event_router_is_read() {
    let mut message = message(&[("id", ID), ("eventType", "OrderPlaced")], "{}");
    message.key = Some(Bytes::from_static(b"o-1"));
    let received = Received::read(&message).unwrap();
    assert_eq!((received.id.to_string().as_str(), received.key()), (ID, "o-1"));
    assert_eq!(received.event_type, "OrderPlaced");
}

#[test]
fn an_id_is_any_text() {
    for id in ["payout-42", "9007199254740993", "заказ 7", &ID.to_uppercase()] {
        for headers in [
            [("Nats-Msg-Id", id), ("Pillarbox-Event-Type", "X")],
            [("id", id), ("eventType", "X")],
        ] {
            let received = Received::read(&message(&headers, "{}")).unwrap();
            assert_eq!(received.id.to_string(), id);
        }
    }
}

#[test]
fn a_message_that_is_not_an_event_gives_the_reason() {
    let no_version: Vec<_> = RAW
        .iter()
        .map(|&(name, text)| match name {
            "Pillarbox-Aggregate-Version" => (name, "three"),
            _ => (name, text),
        })
        .collect();
    for (message, why) in [
        (message(&[], "{}"), "no event id"),
        (message(&[("Pillarbox-Event-Type", "X")], "{}"), "no event id"),
        (message(&[("Nats-Msg-Id", "")], "{}"), "id is empty"),
        (
            message(&[("Nats-Msg-Id", &"x".repeat(256))], "{}"),
            "more than 255",
        ),
        (message(&[("Nats-Msg-Id", "a\nb")], "{}"), "id has a control"),
        (message(&no_version, "{}"), "not a number"),
        (
            message(&[("Nats-Msg-Id", ID), ("Pillarbox-Key", "a\0b")], "{}"),
            "control character",
        ),
    ] {
        let problem = Received::read(&message).unwrap_err();
        assert!(problem.contains(why), "{problem}");
    }
}

proptest! {
    #[test]
    fn no_message_makes_it_panic(name in "(Pillarbox-[A-Z][a-z]*|ce[-_](id|type|subject)|id|eventType|content-type|.*)", text in "(?s).*", body in "(?s).*") {
        let _ = Received::read(&message(&[(&name, &text), ("Nats-Msg-Id", ID)], &body));
        let _ = Received::read(&message(&[(&name, &text), ("id", ID), ("eventType", "x")], &body));
        let _ = Received::read(&message(&[("content-type", "application/cloudevents+json")], &body));
    }
}
