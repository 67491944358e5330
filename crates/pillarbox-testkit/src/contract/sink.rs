//! The contract of sinks, as tests. `sink_contract!(make)` writes one test for each promise. `make` is an
//! async function that returns `Some(harness)`, or `None` if the server is not installed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use pillarbox::{Event, EventId};
use pillarbox_relay::{
    Sink, StoredEvent,
    sink::{Outcome, Outgoing, SinkErrorKind},
};

use crate::wait;

/// A sink and its receiver.
#[async_trait]
pub trait SinkHarness: Send {
    fn sink(&self) -> Arc<dyn Sink>;

    /// What the receiver has, in its order; `None` if it can't be read.
    async fn arrived(&mut self) -> Option<Vec<Arrived>>;

    /// An event that this sink can never accept, if there is one.
    fn invalid(&self) -> Option<Event> {
        None
    }

    /// Stops the receiver; `false` if it can't be stopped.
    async fn stop(&mut self) -> bool {
        false
    }

    async fn start_again(&mut self) {}
}

/// An event at the receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrived {
    pub id: EventId,
    pub key: String,
    pub event_type: String,
    pub aggregate: (String, String),
    pub aggregate_version: Option<i64>,
    /// Including the producer's own headers.
    pub headers: BTreeMap<String, String>,
    pub payload: Bytes,
}

/// The maximum time of a publish in a test: a bit more than the timeout of the sinks under test.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// An event that every harness's receiver accepts.
pub fn event(key: &str, payload: impl Into<Bytes>) -> Event {
    Event::to("contract.event")
        .event_type("Happened")
        .aggregate("thing", key)
        .payload(payload)
}

pub fn outgoing(event: Event) -> Outgoing {
    let stored = StoredEvent {
        seq: 1,
        lane: pillarbox::lane::lane_of(event.key()),
        attempts: 0,
        created_at: "2026-01-02T03:04:05Z".parse().expect("a timestamp"),
        event,
    };
    Outgoing::new(Arc::new(stored))
}

async fn publish(harness: &impl SinkHarness, events: Vec<Event>) -> Vec<Outcome> {
    let batch: Vec<Outgoing> = events.into_iter().map(outgoing).collect();
    let outcomes = tokio::time::timeout(PATIENCE, harness.sink().publish(&batch))
        .await
        .expect("publish returns within its timeout");
    assert_eq!(outcomes.len(), batch.len(), "one outcome for each event");
    outcomes
}

fn payloads(arrived: &[Arrived]) -> Vec<String> {
    arrived
        .iter()
        .map(|event| String::from_utf8_lossy(&event.payload).into_owned())
        .collect()
}

pub async fn each_event_has_its_outcome(mut harness: impl SinkHarness) {
    harness.sink().check().await.expect("the sink is there");
    assert_eq!(publish(&harness, vec![]).await, vec![]);
    let events: Vec<Event> = (0..300).map(|n| event(&format!("k{n}"), n.to_string())).collect();
    let ids: Vec<EventId> = events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(publish(&harness, events).await, vec![Outcome::Delivered; 300]);
    if let Some(arrived) = harness.arrived().await {
        let mut there: Vec<EventId> = arrived.iter().map(|event| event.id.clone()).collect();
        let mut sent = ids;
        there.sort();
        sent.sort();
        assert_eq!(there, sent);
    }
}

pub async fn a_payload_arrives_byte_for_byte(mut harness: impl SinkHarness) {
    let sent = [
        "null".to_owned(),
        r#"{"b": 1.50, "a":[ ], "z":"größer 😀 \u0000 \n"}"#.to_owned(),
        format!("\"{}\"", "x".repeat(1_000_000)),
    ];
    let events = sent
        .iter()
        .enumerate()
        .map(|(n, payload)| event(&format!("k{n}"), payload.clone()));
    assert_eq!(
        publish(&harness, events.collect()).await,
        vec![Outcome::Delivered; 3]
    );
    if let Some(arrived) = harness.arrived().await {
        let mut there = payloads(&arrived);
        there.sort_by_key(String::len);
        assert!(there == sent, "a payload changed on its way");
    }
}

pub async fn an_event_arrives_with_its_fields_and_headers(mut harness: impl SinkHarness) {
    let sent = event("customer-7", "{}")
        .id("Zahlung 42 %20/größer")
        .aggregate_version(42)
        .partition_key("größe 7")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .header("correlation-id", "Zoë");
    assert_eq!(publish(&harness, vec![sent.clone()]).await, [Outcome::Delivered]);
    if let Some(arrived) = harness.arrived().await {
        let there = &arrived[0];
        assert_eq!((there.id.clone(), there.key.as_str()), (sent.id, "größe 7"));
        assert_eq!(there.event_type, "Happened");
        assert_eq!(there.aggregate, ("thing".to_owned(), "customer-7".to_owned()));
        assert_eq!(there.aggregate_version, Some(42));
        for (name, value) in &sent.headers {
            assert_eq!(there.headers.get(name), Some(value), "{name}");
        }
    }
}

pub async fn a_key_keeps_its_order(mut harness: impl SinkHarness) {
    let ordered = harness.sink().capabilities().ordered;
    let size = if ordered { 10 } else { 1 };
    let expected: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    for chunk in expected.chunks(size) {
        let events = chunk.iter().map(|n| event("one", n.clone())).collect();
        assert_eq!(
            publish(&harness, events).await,
            vec![Outcome::Delivered; chunk.len()]
        );
    }
    if let Some(arrived) = harness.arrived().await {
        assert_eq!(payloads(&arrived), expected);
    }
}

pub async fn a_copy_is_dropped_where_the_sink_says_so(mut harness: impl SinkHarness) {
    let once = event("one", "1");
    for _ in 0..2 {
        assert_eq!(publish(&harness, vec![once.clone()]).await, [Outcome::Delivered]);
    }
    let expected = if harness.sink().capabilities().deduplicates {
        1
    } else {
        2
    };
    if let Some(arrived) = harness.arrived().await {
        assert_eq!(arrived.len(), expected);
    }
}

pub async fn a_bad_event_fails_alone(mut harness: impl SinkHarness) {
    let Some(bad) = harness.invalid() else { return };
    let bad = bad.partition_key("bad");
    let outcomes = publish(&harness, vec![event("a", "1"), bad.clone(), event("b", "2")]).await;
    assert_eq!(
        (&outcomes[0], &outcomes[2]),
        (&Outcome::Delivered, &Outcome::Delivered)
    );
    assert!(
        matches!(&outcomes[1], Outcome::Failed(error) if error.kind == SinkErrorKind::Invalid && !error.in_doubt),
        "{:?}",
        outcomes[1]
    );
    if harness.sink().capabilities().ordered {
        let outcomes = publish(&harness, vec![bad, event("bad", "3"), event("c", "4")]).await;
        assert_eq!(
            outcomes[1..],
            [Outcome::NotTried, Outcome::Delivered],
            "what follows a failed one is held"
        );
    }
    if let Some(arrived) = harness.arrived().await {
        let mut payloads = payloads(&arrived);
        payloads.truncate(2);
        payloads.sort();
        assert_eq!(payloads, ["1", "2"]);
        assert!(arrived.iter().all(|event| event.key != "bad"));
    }
}

pub async fn one_that_is_too_large_fails_alone_and_says_both_sizes(mut harness: impl SinkHarness) {
    harness.sink().check().await.expect("the sink is there");
    let Some(max) = harness.sink().capabilities().payload_bytes_max else {
        return;
    };
    let large = format!("\"{}\"", "x".repeat(max));
    let bytes = large.len();
    let outcomes = publish(
        &harness,
        vec![event("a", "1"), event("b", large), event("c", "2")],
    )
    .await;
    assert_eq!(
        (&outcomes[0], &outcomes[2]),
        (&Outcome::Delivered, &Outcome::Delivered)
    );
    let Outcome::Failed(error) = &outcomes[1] else {
        panic!("{max} bytes and more were taken")
    };
    assert_eq!(error.kind, SinkErrorKind::TooLarge);
    for size in [max, bytes] {
        assert!(error.message.contains(&size.to_string()), "{error}");
    }
    if let Some(arrived) = harness.arrived().await {
        assert_eq!(payloads(&arrived), ["1", "2"]);
    }
}

pub async fn an_outage_is_reported_in_time_and_ends(mut harness: impl SinkHarness) {
    assert_eq!(
        publish(&harness, vec![event("a", "1")]).await,
        [Outcome::Delivered]
    );
    if !harness.stop().await {
        return;
    }
    for outcome in publish(&harness, vec![event("b", "2"), event("c", "3")]).await {
        let Outcome::Failed(error) = outcome else {
            panic!("nobody was there to take it: {outcome:?}")
        };
        // A request on a connection that breaks at this moment may have arrived.
        let broke = error.kind == SinkErrorKind::Unclear && error.in_doubt;
        assert!(
            broke
                || matches!(
                    error.kind,
                    SinkErrorKind::Unreachable | SinkErrorKind::Timeout | SinkErrorKind::Unavailable
                ),
            "{error:?}"
        );
    }
    assert!(harness.sink().check().await.is_err());
    harness.start_again().await;
    wait::until_ok_within(PATIENCE, async || harness.sink().check().await).await;
    let last = event("d", "4");
    assert_eq!(publish(&harness, vec![last.clone()]).await, [Outcome::Delivered]);
    if let Some(arrived) = harness.arrived().await {
        assert!(arrived.iter().any(|event| event.id == last.id));
        assert_eq!(arrived[0].payload, "1");
    }
}

#[macro_export]
macro_rules! sink_contract {
    ($make:path) => {
        $crate::sink_contract!(@each $make;
            each_event_has_its_outcome
            a_payload_arrives_byte_for_byte
            an_event_arrives_with_its_fields_and_headers
            a_key_keeps_its_order
            a_copy_is_dropped_where_the_sink_says_so
            a_bad_event_fails_alone
            one_that_is_too_large_fails_alone_and_says_both_sizes
            an_outage_is_reported_in_time_and_ends
        );
    };
    (@each $make:path; $($promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $promise() {
                let Some(harness) = $make().await else { return };
                $crate::contract::sink::$promise(harness).await;
            }
        )*
    };
}
