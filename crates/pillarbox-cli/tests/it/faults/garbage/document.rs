//! One document that nobody checked.

use mongodb::bson::{Binary, Bson, DateTime, Document, Timestamp, doc, oid::ObjectId, spec::BinarySubtype};
use pillarbox::lane::lane_of;
use pillarbox_testkit::fuzz::Fuzz;
use uuid::Uuid;

/// Most of it is correct; otherwise the first error would hide the others. The fields by which it is found
/// (seq, lane, status) are correct, except that the numbers can have any numeric type.
pub(super) fn document(fuzz: &mut Fuzz, nth: u64) -> Document {
    let key = format!("garbage-{}", nth % 50);
    let mut document = doc! {
        "seq": Timestamp { time: 0, increment: 0 },
        "lane": lane(fuzz, &key),
        "status": "pending",
        "event_id": Uuid::now_v7().to_string(),
        "event_type": "X",
        "entity_type": "order",
        "entity_id": key,
        "topic": "orders.x",
        "payload": "{}",
        "created_at": DateTime::now(),
        "retry_count": 0,
    };
    for name in [
        "event_id",
        "event_type",
        "entity_type",
        "entity_id",
        "topic",
        "created_at",
        "retry_count",
    ] {
        match fuzz.below(40) {
            0 => document.remove(name),
            1 | 2 => document.insert(name, anything(fuzz, 2)),
            _ => None,
        };
    }
    const OPTIONAL: [&str; 12] = [
        "stream",
        "partition_key",
        "project_id",
        "user_id",
        "headers",
        "schema_version",
        "entity_version",
        "max_retries",
        "base_delay_ms",
        "backoff_multiplier",
        "available_at",
        "last_error",
    ];
    for name in OPTIONAL {
        if fuzz.one_in(10) {
            document.insert(name, anything(fuzz, 2));
        }
    }
    document.insert("payload", payload(fuzz));
    document
}

fn lane(fuzz: &mut Fuzz, key: &str) -> Bson {
    let lane = i32::from(lane_of(key));
    match fuzz.below(10) {
        0 => Bson::Int64(lane.into()),
        1 => Bson::Double(lane.into()),
        _ => Bson::Int32(lane),
    }
}

fn payload(fuzz: &mut Fuzz) -> Bson {
    match fuzz.below(10) {
        0 => anything(fuzz, 5),
        1 => fuzz.text().into(),
        2 if fuzz.one_in(10) => "1".repeat(1_100_000).into(),
        3 => deep(fuzz.below(150)).into(),
        4 => doc! { "n": 1, "list": [1.5, "x", Bson::Null], "at": DateTime::now(), "ref": ObjectId::new() }
            .into(),
        _ => fuzz.json().into(),
    }
}

fn deep(levels: usize) -> Document {
    (0..levels).fold(doc! { "end": true }, |inner, _| doc! { "in": inner })
}

/// A value of any type that a document can hold.
fn anything(fuzz: &mut Fuzz, depth: usize) -> Bson {
    let kinds = if depth == 0 { 11 } else { 13 };
    match fuzz.below(kinds) {
        0 => Bson::Null,
        1 => Bson::Boolean(fuzz.one_in(2)),
        2 => Bson::Int32(fuzz.integer() as i32),
        3 => Bson::Int64(fuzz.integer()),
        4 => Bson::Double(fuzz.float()),
        5 => Bson::String(fuzz.text()),
        6 => Bson::Binary(Binary {
            subtype: BinarySubtype::Generic,
            bytes: fuzz.bytes(),
        }),
        7 => Bson::DateTime(DateTime::from_millis(fuzz.integer())),
        8 => Bson::ObjectId(ObjectId::new()),
        9 => Bson::MaxKey,
        10 => Bson::Timestamp(Timestamp {
            time: fuzz.integer() as u32,
            increment: 1,
        }),
        11 => Bson::Array((0..fuzz.below(4)).map(|_| anything(fuzz, depth - 1)).collect()),
        // A field name can't contain NUL.
        _ => (0..fuzz.below(4))
            .map(|_| (fuzz.text().replace('\0', ""), anything(fuzz, depth - 1)))
            .collect::<Document>()
            .into(),
    }
}
