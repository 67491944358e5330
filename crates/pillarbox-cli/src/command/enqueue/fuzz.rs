//! Random NDJSON.

use jiff::Timestamp;
use pillarbox::{Enqueued, Event, Limits, table::Tables};
use pillarbox_relay::{
    connect::{self, DatabaseOptions, OpenStore},
    store::admin::RECENT_PAYLOAD_BYTES_MAX,
};
use pillarbox_testkit::{
    fuzz::{self, Fuzz, assert_says_something},
    torture::Campaign,
};

use super::ndjson;

const LINES: &str = concat!(
    r#"{"id":"0197a1b2-11aa-7000-8000-0123456789ab","topic":"shop.order.placed","event_type":"OrderPlaced","aggregate_type":"order","aggregate_id":"o-1","aggregate_version":3,"partition_key":"c-7","schema_version":2,"payload":{"total": 990, "lines": [1.50, 1e3, "\u00e9", null]},"headers":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},"project_id":"p","user_id":"u","stream":"ORDERS"}"#,
    "\n\n",
    r#"{"topic":"shop.order.paid","event_type":"OrderPaid","aggregate_type":"order","aggregate_id":"o-1","payload":{"n":1},"available_at":"2026-01-31T12:00:00Z","max_attempts":9,"base_delay_ms":100,"max_delay_ms":2000,"backoff_multiplier":1.5}"#,
    "\r\n",
    r#"{"topic":"t","event_type":"X","aggregate_type":"a","aggregate_id":"1","payload":"text"}"#,
    "\n",
);

fn input(fuzz: &mut Fuzz) -> Vec<u8> {
    match fuzz.below(10) {
        0 => whole(fuzz).into_bytes(),
        1 => (0..fuzz.below(5))
            .map(|_| whole(fuzz) + "\n")
            .collect::<String>()
            .into_bytes(),
        2 => LINES.replace("\"text\"", &fuzz.json()).into_bytes(),
        _ => fuzz.mutated(LINES.as_bytes()),
    }
}

/// An event of which each part may be unusual, but usually is not.
fn whole(fuzz: &mut Fuzz) -> String {
    let mut name = |usual: &str| match fuzz.one_in(6) {
        true => fuzz.text(),
        false => usual.to_owned(),
    };
    let mut event = Event::to(name("shop.x"))
        .event_type(name("X"))
        .aggregate(name("order"), name("o-1"));
    event.partition_key = Some(name("key"));
    event.user_id = Some(name("user"));
    event = event.header(name("header"), name("value"));
    event.aggregate_version = Some(fuzz.integer());
    let payload = fuzz.json();
    let line = serde_json::to_string(&event).unwrap();
    line.replacen("\"payload\":null", &format!("\"payload\":{payload}"), 1)
}

/// Every event that is read and within the limits is stored, and reads back the same.
fn attempt(input: &[u8], open: &OpenStore, runtime: &tokio::runtime::Runtime) {
    let limits = Limits::default();
    let given = match ndjson::read(input, &limits) {
        Ok(given) => given,
        Err(error) => {
            let text = format!("{error:#}");
            assert!(
                text.starts_with("line ") && text.contains("Nothing was written"),
                "{text}"
            );
            return assert_says_something(&text);
        }
    };
    assert_eq!(given.events.len(), given.lines.len());
    let now = Timestamp::now();
    let good = given
        .events
        .iter()
        .all(|event| limits.check_new(event, now).is_ok());
    let results = match runtime.block_on(open.admin.enqueue(&limits, &given.events)) {
        Ok(results) => results,
        Err(error) => {
            assert!(!good, "within the limits and not stored: {error:?}");
            return assert_says_something(&super::explain(error, &given.lines).to_string());
        }
    };
    assert!(good && results.len() == given.events.len());
    let stored = runtime.block_on(open.admin.recent(given.events.len())).unwrap();
    for (event, result) in given.events.iter().zip(results) {
        // An id that existed before keeps its old event. A large payload is not read back.
        if result == Enqueued::New && event.payload.len() <= RECENT_PAYLOAD_BYTES_MAX {
            let read = stored.iter().find(|recent| recent.event.event.id == event.id);
            assert_eq!(read.map(|recent| &recent.event.event), Some(event));
        }
    }
}

/// Mutated NDJSON for `enqueue`: an error names the line and nothing is written, or all reads back the same.
#[test]
fn torture_fuzz_ndjson() {
    let campaign = Campaign::begin("fuzz_ndjson");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = DatabaseOptions {
        tables: Tables::default(),
        ..DatabaseOptions::new(format!("sqlite:{}", folder.path().join("fuzz.db").display()))
    };
    let open = connect::store(&options).unwrap();
    runtime.block_on(open.admin.migrate()).unwrap();
    fuzz::each(&campaign, input, move |input| attempt(&input, &open, &runtime));
}
