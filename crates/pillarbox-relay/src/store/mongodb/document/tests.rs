#![allow(clippy::unwrap_used)]

use mongodb::bson::{RawDocumentBuf, doc, oid::ObjectId};

use super::*;

const LIMIT: PageLimit = PageLimit {
    events: 10,
    bytes: 1_000,
    payload_bytes_max: 100,
};

fn raw(document: mongodb::bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&document).unwrap()
}

fn full() -> mongodb::bson::Document {
    let event = Event::to("t.x")
        .event_type("X")
        .aggregate("thing", "1")
        .payload("[1]");
    let mut document = pillarbox::enqueue::mongodb_document(&event);
    document.insert(
        "seq",
        Timestamp {
            time: 1_700_000_000,
            increment: 7,
        },
    );
    document
}

#[test]
fn a_seq_keeps_the_order_of_the_clock_and_leads_back() {
    let ticks = [
        (1_600_000_000, 1),
        (1_700_000_000, 0),
        (1_700_000_000, u32::MAX),
        (1_700_000_001, 1),
    ];
    let ticks = ticks.map(|(time, increment)| Timestamp { time, increment });
    assert!(ticks.is_sorted_by_key(|&tick| seq(tick)));
    assert!(ticks.iter().all(|&tick| timestamp(seq(tick)) == tick));
    let last = Timestamp {
        time: 3_747_483_647,
        increment: u32::MAX,
    };
    assert_eq!(seq(last), i64::MAX);
    assert_eq!(
        timestamp(0),
        Timestamp {
            time: 1_600_000_000,
            increment: 0
        }
    );
}

#[test]
fn a_date_is_never_before_its_time() {
    for micros in [0, 1, 999, 1_000, 1_001, -1, -1_000] {
        let at = Time::from_microsecond(micros).unwrap();
        let late = time(date(at)).as_microsecond() - micros;
        assert!((0..1_000).contains(&late), "{micros}: {late}");
    }
}

#[test]
fn a_document_of_another_languages_service_is_an_event() {
    let mut document = full();
    document.insert(
        "payload",
        doc! { "name": "Ada", "ref": ObjectId::from_bytes([1; 12]), "n": [1_i64, 2.5] },
    );
    document.insert("headers", doc! { "a.b": "dotted", "$c": 1, "d": true });
    document.insert("retry_count", 2.0);
    document.insert("entity_version", 5);
    document.insert("last_error", Bson::Null);
    let read = event(&raw(document), LIMIT).unwrap();
    assert_eq!(read.attempts, 2);
    assert_eq!(read.event.aggregate_version, Some(5));
    assert_eq!(
        std::str::from_utf8(&read.event.payload).unwrap(),
        r#"{"name":"Ada","ref":{"$oid":"010101010101010101010101"},"n":[1,2.5]}"#
    );
    let headers: Vec<_> = read
        .event
        .headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    assert_eq!(headers, [("$c", "1"), ("a.b", "dotted"), ("d", "true")]);
}

#[test]
fn an_unreadable_document_keeps_its_key_and_gives_the_reason() {
    for (name, value, problem) in [
        ("event_id", Bson::from(7), "event_id is not a text"),
        ("event_id", Bson::from("x".repeat(256)), "id has 256 bytes; 255"),
        ("topic", Bson::from(1), "topic is not a text"),
        ("payload", Bson::from("{"), "JSON"),
        (
            "payload",
            Bson::from("x".repeat(101)),
            "101 bytes; 100 are allowed",
        ),
        ("headers", Bson::from(doc! { "h": [1] }), "header `h`"),
        ("retry_count", Bson::from(-1), "retry_count is -1"),
        ("created_at", Bson::from("today"), "created_at"),
    ] {
        let mut document = full();
        document.insert(name, value);
        let unreadable = event(&raw(document), LIMIT).unwrap_err();
        assert!(unreadable.problem.contains(problem), "{}", unreadable.problem);
        assert_eq!(timestamp(unreadable.seq).increment, 7);
        assert_eq!(unreadable.key.as_deref(), Some("1"));
    }
}
