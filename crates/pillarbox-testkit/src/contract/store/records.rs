//! The contract of records.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use pillarbox_relay::store::records::{Change, Content, Record, RecordClaim, RecordKey, Records};

use super::{StoreHarness, scene::*};

fn content(value: &str, due_in: Option<Duration>) -> Option<Content> {
    Some(Content {
        value: value.to_owned(),
        due_in,
        keep_for: None,
    })
}

fn put(name: &str, version: u64, value: &str) -> Change {
    Change {
        key: RecordKey::new("scene", name),
        version,
        content: content(value, None),
    }
}

/// A record that can be claimed.
fn due(name: &str, place: i64) -> Change {
    Change {
        key: RecordKey {
            place,
            ..RecordKey::new("scene", name)
        },
        version: 0,
        content: content("due", Some(Duration::ZERO)),
    }
}

async fn values(records: &dyn Records) -> Vec<(String, u64, String)> {
    let (_, found) = records.read("scene", None, 100).await.unwrap();
    let mut found: Vec<_> = found
        .into_iter()
        .map(|record| (record.key.name, record.version, record.value))
        .collect();
    found.sort();
    found
}

fn row(name: &str, version: u64, value: &str) -> (String, u64, String) {
    (name.to_owned(), version, value.to_owned())
}

async fn claimed(records: &dyn Records, lease: Duration) -> Option<Record> {
    match records.claim("scene", lease).await.unwrap() {
        RecordClaim::One(record) => Some(*record),
        RecordClaim::Nothing { .. } => None,
    }
}

pub async fn a_write_needs_the_version_it_replaces(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    let (begin, none) = records.read("scene", None, 100).await.unwrap();
    assert!(none.is_empty() && begin > Timestamp::now() - SignedDuration::from_secs(3_600));
    let text = "{\"a\": \"“ü” \\u0000 '$1 {events}\"}";
    assert!(records.write(&[put("a", 0, text)]).await.unwrap());
    assert!(
        !records.write(&[put("a", 0, "again")]).await.unwrap(),
        "it is there"
    );
    assert!(
        !records.write(&[put("b", 3, "new")]).await.unwrap(),
        "it is not there"
    );
    assert_eq!(values(&*records).await, [row("a", 1, text)]);
    assert!(records.write(&[put("a", 1, "second")]).await.unwrap());
    assert!(!records.write(&[put("a", 1, "late")]).await.unwrap());
    assert_eq!(values(&*records).await, [row("a", 2, "second")]);
    let (now, found) = records.read("scene", Some("a"), 1).await.unwrap();
    assert!(found[0].written_at >= begin && found[0].written_at <= now);
    assert!(records.read("scene", Some("b"), 1).await.unwrap().1.is_empty());
    assert!(records.read("other", None, 1).await.unwrap().1.is_empty());
    let gone = |version| Change {
        content: None,
        ..put("a", version, "")
    };
    assert!(!records.write(&[gone(1)]).await.unwrap());
    assert!(records.write(&[gone(2)]).await.unwrap());
    assert!(!records.write(&[gone(2)]).await.unwrap());
    assert_eq!(values(&*records).await, []);
    assert!(records.write(&[put("a", 0, "anew")]).await.unwrap());
    assert_eq!(values(&*records).await, [row("a", 1, "anew")]);
}

pub async fn of_several_writers_one_succeeds(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    for version in 0..3 {
        let changes: Vec<[Change; 1]> = (0..4).map(|n| [put("a", version, &n.to_string())]).collect();
        let writes = changes.iter().map(|change| records.write(change));
        let written = futures::future::join_all(writes).await;
        let written: Vec<bool> = written.into_iter().map(Result::unwrap).collect();
        assert_eq!(
            written.iter().filter(|written| **written).count(),
            1,
            "{written:?}"
        );
        let first = written.iter().position(|written| *written).unwrap();
        assert_eq!(
            values(&*records).await,
            [row("a", version + 1, &first.to_string())]
        );
    }
}

pub async fn changes_are_written_all_or_none(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    assert!(
        records
            .write(&[put("a", 0, "1"), put("b", 0, "1")])
            .await
            .unwrap()
    );
    for wrong in [
        [put("c", 0, "2"), put("a", 7, "2")],
        [put("a", 1, "2"), put("b", 0, "2")],
    ] {
        assert!(!records.write(&wrong).await.unwrap());
        assert_eq!(values(&*records).await, [row("a", 1, "1"), row("b", 1, "1")]);
    }
}

pub async fn a_holder_whose_lease_ended_writes_nothing(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    assert!(records.write(&[due("a", 0), put("quiet", 0, "")]).await.unwrap());
    let first = claimed(&*records, Duration::ZERO).await.unwrap();
    assert_eq!((first.version, first.claims, &*first.value), (2, 1, "due"));
    eventually("the lease ends", || async {
        claimed(&*records, LONG).await.is_some()
    })
    .await;
    let (_, found) = records.read("scene", Some("a"), 1).await.unwrap();
    let second = &found[0];
    assert_eq!((second.version, second.claims), (3, 2));
    let to = |record: &Record, value| Change {
        key: record.key.clone(),
        version: record.version,
        content: content(value, None),
    };
    assert!(!records.write(&[to(&first, "late")]).await.unwrap());
    assert!(records.write(&[to(second, "done")]).await.unwrap());
    assert_eq!(
        values(&*records).await,
        [row("a", 4, "done"), row("quiet", 1, "")]
    );
    assert_eq!(
        records.claim("scene", LONG).await.unwrap(),
        RecordClaim::Nothing { next: None }
    );
}

pub async fn a_queue_is_claimed_in_order(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    assert!(records.write(&[due("a", 9), due("a", 10)]).await.unwrap());
    let first = claimed(&*records, LONG).await.unwrap();
    assert_eq!(first.key.place, 9);
    let RecordClaim::Nothing { next: Some(next) } = records.claim("scene", LONG).await.unwrap() else {
        panic!("the second one waits for the first");
    };
    assert!(next <= LONG && next > LONG / 2, "{next:?}");
    assert!(records.write(&[due("b", 1)]).await.unwrap());
    assert_eq!(&*claimed(&*records, LONG).await.unwrap().key.name, "b");
    let done = Change {
        key: first.key,
        version: first.version,
        content: None,
    };
    assert!(records.write(&[done]).await.unwrap());
    assert_eq!(claimed(&*records, LONG).await.unwrap().key.place, 10);
}

pub async fn records_are_read_latest_first(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    for name in ["a", "b", "c"] {
        assert!(records.write(&[put(name, 0, "")]).await.unwrap());
        // A clock may be coarse.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(records.write(&[put("a", 1, "")]).await.unwrap());
    for limit in [1, 2, 3] {
        let (_, found) = records.read("scene", None, limit).await.unwrap();
        let names: Vec<&str> = found.iter().map(|record| &*record.key.name).collect();
        assert_eq!(names, ["a", "c", "b"][..limit]);
    }
}

pub async fn the_record_that_was_due_first_is_claimed_first(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    for name in ["z", "a"] {
        assert!(records.write(&[due(name, 0)]).await.unwrap());
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let (_, before) = records.read("scene", Some("z"), 1).await.unwrap();
    let first = claimed(&*records, LONG).await.unwrap();
    assert_eq!(&*first.key.name, "z");
    assert_eq!(first.written_at, before[0].written_at, "a claim is not a write");
    assert_eq!(&*claimed(&*records, LONG).await.unwrap().key.name, "a");
}

pub async fn expired_records_are_deleted(harness: Arc<dyn StoreHarness>) {
    let records = harness.records();
    let kept = |name, keep_for| Change {
        content: Some(Content {
            value: String::new(),
            due_in: None,
            keep_for,
        }),
        ..put(name, 0, "")
    };
    let changes = [
        kept("old", Some(Duration::ZERO)),
        kept("young", Some(LONG)),
        kept("always", None),
    ];
    assert!(records.write(&changes).await.unwrap());
    eventually("the old one goes", || async {
        records.drop_expired().await.unwrap();
        values(&*records).await == [row("always", 1, ""), row("young", 1, "")]
    })
    .await;
}
