//! One trace from the producer's span through the relay to the consumer's span: the real relay, on NATS.

use std::sync::{Arc, Mutex};

use async_nats::jetstream::{self, stream};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use pillarbox::{
    Inbox, Outbox,
    consume::{Consumer, JetStream},
};
use pillarbox_testkit::{
    collector_stub::{CollectorStub, attribute},
    wait,
};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

use super::harness::{Scene, event};

/// The spans of this thread: what an application with OpenTelemetry exports.
fn telemetry() -> (InMemorySpanExporter, tracing::subscriber::DefaultGuard) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("application"));
    let subscriber = tracing_subscriber::registry().with(layer);
    (exporter, tracing::subscriber::set_default(subscriber))
}

fn named(spans: &[SpanData], name: &str) -> SpanData {
    let mut named = spans.iter().filter(|span| span.name == name);
    let span = named
        .next()
        .unwrap_or_else(|| panic!("no span `{name}`: {spans:#?}"));
    assert!(named.next().is_none(), "several spans `{name}`: {spans:#?}");
    span.clone()
}

#[tokio::test]
async fn one_trace_goes_from_the_producer_through_failed_attempts_to_the_consumer() {
    let collector = CollectorStub::start().await.unwrap();
    let tracing = format!("{{ tracing: {{ otlp_endpoint: '{}' }} }}", collector.url());
    let scene = Scene::start(|config| {
        config.routes = "[{ topic: 'late.>', sink: events, stream: LATE }]".to_owned();
        config.monitoring = tracing;
    });
    let Some((scene, nats)) = scene.await else { return };
    let (exporter, _guard) = telemetry();
    let mut late = event("key", 1);
    late.topic = "late.placed".to_owned();
    late.headers.clear();
    let enqueue = async {
        let mut tx = scene.pool.begin().await.unwrap();
        Outbox::default().enqueue(&mut tx, &late).await.unwrap();
        tx.commit().await.unwrap();
    };
    enqueue.instrument(tracing::info_span!("request")).await;

    // The stream does not exist yet, so the first attempts fail.
    let relay = scene.relay("relay").await;
    collector.until(1).await;
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let config = stream::Config {
        name: "LATE".to_owned(),
        subjects: vec!["late.>".to_owned()],
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    Inbox::default().migrate(&scene.pool).await.unwrap();
    let handled = Arc::new(Mutex::new(None));
    let seen = handled.clone();
    let consumer = Consumer::new("billing", scene.pool.clone())
        .start_fn(JetStream::new(context, "LATE"), move |event, _context, _tx| {
            let seen = seen.clone();
            Box::pin(async move {
                *seen.lock().unwrap() = Some(event.id.clone());
                Ok(())
            })
        })
        .await
        .unwrap();
    scene.settled().await;
    let consumed = wait::until_ok(async || {
        let spans = exporter.get_finished_spans().unwrap();
        let found = spans.iter().find(|span| span.name == "handle").cloned();
        found.ok_or_else(|| format!("the event is not handled yet: {spans:?}"))
    })
    .await;
    consumer.stop().await.unwrap();
    relay.stop().await;
    assert_eq!(*handled.lock().unwrap(), Some(late.id));

    let request = named(&exporter.get_finished_spans().unwrap(), "request");
    let (trace, cause) = (request.span_context.trace_id(), request.span_context.span_id());
    let mut spans = collector.spans();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    assert!(
        spans.iter().all(|span| span.trace_id == trace.to_bytes()),
        "{spans:#?}"
    );
    let delivery = spans
        .iter()
        .find(|span| span.name == "deliver late.placed")
        .unwrap();
    assert_eq!(delivery.parent_span_id, cause.to_bytes());
    let attempts: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "publish late.placed")
        .collect();
    let (last, failed) = attempts.split_last().unwrap();
    assert!(!failed.is_empty() && last.status.is_none(), "{attempts:#?}");
    for attempt in failed {
        assert_eq!(attempt.status.as_ref().unwrap().code, 2);
        assert_eq!(attribute(attempt, "error.type").as_deref(), Some("unavailable"));
    }
    for attempt in &attempts {
        assert_eq!(attempt.parent_span_id, delivery.span_id);
        assert_eq!(attribute(attempt, "messaging.system").as_deref(), Some("nats"));
    }
    assert_eq!(consumed.span_context.trace_id(), trace);
    assert_eq!(
        consumed.parent_span_id.to_bytes(),
        *last.span_id,
        "the consumer's span is below the attempt that delivered the event"
    );
    assert!(consumed.parent_span_is_remote);
}
