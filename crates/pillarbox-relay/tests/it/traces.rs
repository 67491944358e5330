//! The relay's spans, as a collector receives them, and the headers that sinks receive.

mod harness;

use std::{collections::BTreeMap, net::TcpListener, time::Duration};

use opentelemetry_proto::tonic::trace::v1::Span;
use pillarbox::Event;
use pillarbox_relay::{metrics::PREFIX, scale::ScaleLimits, sink::SinkErrorKind};
use pillarbox_testkit::{
    collector_stub::{CollectorStub, attribute, traceparent},
    wait,
};
use tokio::time::Instant;

use self::harness::{PRIVATE, Scene, event, traced};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The spans whose name begins with this, in the order of their beginning.
fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    let mut named: Vec<&Span> = spans.iter().filter(|span| span.name.starts_with(name)).collect();
    named.sort_by_key(|span| span.start_time_unix_nano);
    named
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let [span] = named(spans, name)[..] else {
        panic!("not one span `{name}`: {spans:#?}")
    };
    span
}

fn failure(span: &Span) -> Option<&str> {
    let status = span.status.as_ref()?;
    assert_eq!(status.code, 2);
    Some(&status.message)
}

/// Waits until the sink was asked to store the event so many times.
async fn tried(scene: &Scene, event: &Event, times: usize) -> Vec<BTreeMap<String, String>> {
    wait::until("the event is tried", async || {
        scene.sink.headers(event).len() >= times
    })
    .await;
    scene.sink.headers(event)
}

#[tokio::test]
async fn one_trace_has_the_attempts_of_all_relays_and_the_message_continues_it() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    let event = traced("a", PARENT);
    scene.sink.refuse(&event, 3, SinkErrorKind::Busy);
    scene.enqueue(std::slice::from_ref(&event)).await;
    let relay = scene.relay(Some(&collector.url()), 0.0);
    tried(&scene, &event, 2).await;
    relay.stop().await.unwrap();
    let relay = scene.relay(Some(&collector.url()), 0.0);
    tried(&scene, &event, 4).await;
    relay.stop().await.unwrap();

    let spans = collector.spans();
    let [delivery, waited] = [one(&spans, "deliver "), one(&spans, "wait")];
    let attempts = named(&spans, "publish ");
    assert_eq!(attempts.len(), 4, "{spans:#?}");
    assert_eq!(spans.len(), 6);
    assert_eq!((&*delivery.name, delivery.kind), ("deliver t.placed", 1));
    assert_eq!(delivery.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
    assert_eq!((delivery.flags, waited.flags), (0x301, 0x101));
    assert!(failure(delivery).is_none() && delivery.events.is_empty());
    assert_eq!(waited.start_time_unix_nano, delivery.start_time_unix_nano);
    assert_eq!(waited.end_time_unix_nano, attempts[0].start_time_unix_nano);
    for below in attempts.iter().chain([&waited]) {
        assert_eq!(below.parent_span_id, delivery.span_id, "{below:?}");
    }
    for (n, attempt) in attempts.iter().enumerate() {
        assert_eq!((&*attempt.name, attempt.kind), ("publish t.placed", 4));
        let id = event.id.to_string();
        for (name, expected) in [
            ("pillarbox.attempt", (n + 1).to_string().as_str()),
            ("pillarbox.sink", "events"),
            ("messaging.system", "nats"),
            ("messaging.destination.name", "t.placed"),
            ("messaging.message.id", &id),
        ] {
            assert_eq!(attribute(attempt, name).as_deref(), Some(expected), "{name}");
        }
        let fails = n < 3;
        assert_eq!(failure(attempt), fails.then_some("not like this"));
        assert_eq!(attribute(attempt, "error.type"), fails.then(|| "busy".to_owned()));
    }
    for (headers, attempt) in scene.sink.headers(&event).iter().zip(&attempts) {
        assert_eq!(headers["traceparent"], traceparent(attempt));
        assert_eq!(headers["tracestate"], "vendor=value");
        assert_eq!(headers.len(), 2);
    }
    for span in &spans {
        assert_eq!(traceparent(span)[..36], PARENT[..36], "the trace");
        assert_eq!(span.trace_state, "vendor=value");
        assert!(!format!("{span:?}").contains(PRIVATE));
    }
    assert_eq!(collector.resource("service.name").as_deref(), Some("pillarbox"));
    assert_eq!(collector.resource("pillarbox.relay").as_deref(), Some("relay-1"));
    let head = collector.head();
    for line in [
        "authorization: bearer x\r\n",
        "content-type: application/x-protobuf\r\n",
    ] {
        assert!(head.contains(line), "{head}");
    }
}

#[tokio::test]
async fn a_death_ends_the_trace_with_its_reason() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    let refused = traced("a", PARENT);
    let mut unroutable = traced("b", PARENT);
    unroutable.topic = "elsewhere".into();
    scene.sink.refuse(&refused, 1, SinkErrorKind::Refused);
    scene.enqueue(&[refused, unroutable]).await;
    let relay = scene.relay(Some(&collector.url()), 0.0);
    let spans = collector.until(4).await;
    relay.stop().await.unwrap();
    let died = |name: &str, why: &str| {
        let delivery = one(&spans, name);
        assert!(failure(delivery).unwrap().contains(why), "{delivery:?}");
        assert_eq!(delivery.events[0].name, "dead letter");
        assert_eq!(delivery.events[0].attributes[0].key, "pillarbox.reason");
        delivery.span_id.clone()
    };
    let delivery = died("deliver t.placed", "not like this");
    died("deliver elsewhere", "no route matches");
    assert_eq!(one(&spans, "publish ").parent_span_id, delivery);
    assert_eq!(one(&spans, "wait").parent_span_id, delivery);
}

#[tokio::test]
async fn an_event_that_is_not_traced_is_sent_with_its_own_headers() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    let events = [
        event("none"),
        traced("not-sampled", &PARENT.replace("-01", "-00")),
        traced("invalid", "00-own"),
    ];
    scene.enqueue(&events).await;
    let relay = scene.relay(Some(&collector.url()), 0.0);
    for event in &events {
        assert_eq!(
            tried(&scene, event, 1).await,
            std::slice::from_ref(&event.headers)
        );
    }
    relay.stop().await.unwrap();
    assert_eq!(collector.spans(), []);

    let sampled = traced("off", PARENT);
    scene.enqueue(std::slice::from_ref(&sampled)).await;
    let relay = scene.relay(None, 1.0);
    assert_eq!(
        tried(&scene, &sampled, 1).await,
        std::slice::from_ref(&sampled.headers)
    );
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn an_event_without_a_trace_begins_one_at_the_relay_if_it_is_chosen() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    let event = event("a");
    scene.enqueue(std::slice::from_ref(&event)).await;
    let relay = scene.relay(Some(&collector.url()), 1.0);
    let headers = tried(&scene, &event, 1).await;
    relay.stop().await.unwrap();
    let spans = collector.spans();
    let attempt = one(&spans, "publish ");
    assert_eq!(
        attempt.trace_id,
        event.id.as_uuid().unwrap().as_bytes(),
        "people can look up the id"
    );
    assert!(one(&spans, "deliver ").parent_span_id.is_empty());
    assert_eq!(headers[0]["traceparent"], traceparent(attempt));
}

#[tokio::test]
async fn a_collector_that_is_away_or_silent_delays_no_event_and_no_stop() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [&silent, &away].map(|listener| format!("http://{}", listener.local_addr().unwrap()));
    drop(away);
    for url in urls {
        let scene = Scene::new().await;
        let events: Vec<Event> = (0..20).map(|n| traced(&n.to_string(), PARENT)).collect();
        scene.enqueue(&events).await;
        let began = Instant::now();
        let relay = scene.relay(Some(&url), 0.0);
        let metrics = relay.metrics(PREFIX, ScaleLimits::default());
        for event in &events {
            tried(&scene, event, 1).await;
        }
        // The first request begins after a second.
        assert!(began.elapsed() < Duration::from_secs(10));
        let stopping = Instant::now();
        relay.stop().await.unwrap();
        assert!(
            stopping.elapsed() < Duration::from_secs(4),
            "{:?}",
            stopping.elapsed()
        );
        let text = metrics.text();
        for line in [
            "outbox_trace_spans_total 0",
            "outbox_trace_spans_dropped_total 60",
        ] {
            assert!(text.lines().any(|known| known == line), "no `{line}` in {text}");
        }
    }
}

#[tokio::test]
async fn spans_wait_for_a_collector_that_is_overloaded_and_not_for_one_that_refuses_them() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    let relay = scene.relay(Some(&collector.url()), 0.0);
    let metrics = relay.metrics(PREFIX, ScaleLimits::default());
    let has = async |line: &str| {
        wait::until(line, async || metrics.text().lines().any(|known| known == line)).await;
    };
    collector.answer(503);
    let waits = traced("a", PARENT);
    scene.enqueue(std::slice::from_ref(&waits)).await;
    wait::until("the collector is asked", async || collector.requests() > 0).await;
    collector.answer(200);
    has("outbox_trace_spans_total 3").await;
    has("outbox_trace_spans_dropped_total 0").await;
    collector.answer(400);
    scene.enqueue(&[traced("b", PARENT)]).await;
    has("outbox_trace_spans_dropped_total 3").await;
    let attempt = one(&collector.spans(), "publish ").clone();
    assert_eq!(
        attribute(&attempt, "messaging.message.id"),
        Some(waits.id.to_string())
    );
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn spans_that_the_collector_rejects_count_as_dropped() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    collector.reject(2);
    scene.enqueue(&[traced("a", PARENT)]).await;
    let relay = scene.relay(Some(&collector.url()), 0.0);
    let metrics = relay.metrics(PREFIX, ScaleLimits::default());
    for line in ["outbox_trace_spans_total 1", "outbox_trace_spans_dropped_total 2"] {
        wait::until(line, async || metrics.text().lines().any(|known| known == line)).await;
    }
    relay.stop().await.unwrap();
}

/// The destination accepts nothing for many trials.
#[tokio::test]
async fn an_outage_has_a_span_for_its_first_attempt_and_for_the_last_one() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    let event = traced("a", PARENT);
    scene.sink.refuse(&event, 5, SinkErrorKind::Unavailable);
    scene.enqueue(std::slice::from_ref(&event)).await;
    let relay = scene.relay(Some(&collector.url()), 0.0);
    let headers = tried(&scene, &event, 6).await;
    relay.stop().await.unwrap();
    let spans = collector.spans();
    let [first, last] = named(&spans, "publish ")[..] else {
        panic!("{spans:#?}")
    };
    assert_eq!((failure(first), failure(last)), (Some("not like this"), None));
    assert_eq!(traceparent(last), headers[5]["traceparent"]);
    assert_eq!(spans.len(), 4, "with `wait` and `deliver`");
}

/// A trial that ends in a failure of the event's own is an attempt that counts.
#[tokio::test]
async fn a_trial_that_kills_its_event_has_a_span() {
    let (scene, collector) = (Scene::new().await, CollectorStub::start().await.unwrap());
    let event = traced("a", PARENT);
    scene.sink.refuse(&event, u32::MAX, SinkErrorKind::Unavailable);
    scene.enqueue(std::slice::from_ref(&event)).await;
    let relay = scene.relay(Some(&collector.url()), 0.0);
    tried(&scene, &event, 2).await;
    scene.sink.refuse(&event, 1, SinkErrorKind::Refused);
    let spans = collector.until(4).await;
    relay.stop().await.unwrap();
    let kinds: Vec<_> = named(&spans, "publish ")
        .iter()
        .map(|span| attribute(span, "error.type").unwrap())
        .collect();
    assert_eq!(kinds, ["unavailable", "refused"]);
}
