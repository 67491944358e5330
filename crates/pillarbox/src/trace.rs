//! The trace of an event: the context of the current `tracing` span, as W3C Trace Context headers.

use std::borrow::Cow;
#[cfg(feature = "consume")]
use std::str::FromStr;

use opentelemetry::trace::TraceContextExt;
#[cfg(feature = "consume")]
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

pub use crate::wire::{TRACEPARENT, TRACESTATE};
use crate::{check::Limits, event::Event};

/// The current context, if a subscriber with OpenTelemetry is active.
struct Current {
    traceparent: String,
    tracestate: String,
}

/// Adds the current context to events that have none, if there is room for it.
pub(crate) fn traced<'a>(events: &'a [Event], limits: &Limits) -> Cow<'a, [Event]> {
    if events.iter().all(|event| event.headers.contains_key(TRACEPARENT)) {
        return events.into();
    }
    let Some(current) = current() else {
        return events.into();
    };
    let trace = |event: &Event| {
        let first_use = event.first_use.hand_over(&event.id);
        let mut event = event.clone();
        event.first_use = first_use;
        add(&mut event, &current, limits);
        event
    };
    events.iter().map(trace).collect()
}

fn current() -> Option<Current> {
    let context = Span::current().context();
    let span = context.span();
    let span = span.span_context();
    span.is_valid().then(|| Current {
        traceparent: format!(
            "00-{}-{}-{:02x}",
            span.trace_id(),
            span.span_id(),
            span.trace_flags().to_u8() & 1
        ),
        tracestate: span.trace_state().header(),
    })
}

/// Makes the span part of the trace of an event. An invalid trace context is ignored.
#[cfg(feature = "consume")]
pub(crate) fn adopt(span: &Span, traceparent: &str, tracestate: &str) {
    let mut parts = traceparent.split('-');
    let mut hex = |length: usize| parts.next().filter(|part| part.len() == length);
    let (Some(_version), Some(trace), Some(parent), Some(flags)) = (hex(2), hex(32), hex(16), hex(2)) else {
        return;
    };
    let (Ok(trace), Ok(parent), Ok(flags)) = (
        TraceId::from_hex(trace),
        SpanId::from_hex(parent),
        u8::from_str_radix(flags, 16),
    ) else {
        return;
    };
    let state = TraceState::from_str(tracestate).unwrap_or_default();
    let remote = SpanContext::new(trace, parent, TraceFlags::new(flags & 1), true, state);
    if remote.is_valid() {
        // Without a tracing subscriber there is no trace to join.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }
}

/// A trace must not cause a refusal: an event whose headers are close to the limits goes without it.
fn add(event: &mut Event, current: &Current, limits: &Limits) {
    if event.headers.contains_key(TRACEPARENT) {
        return;
    }
    let has: usize = event
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let adds = TRACEPARENT.len() + current.traceparent.len() + TRACESTATE.len() + current.tracestate.len();
    if event.headers.len() + 2 > limits.headers_max || has + adds > limits.headers_bytes_max {
        return;
    }
    let headers = &mut event.headers;
    headers.insert(TRACEPARENT.into(), current.traceparent.clone());
    // The state of another trace would not fit this parent.
    headers.remove(TRACESTATE);
    if !current.tracestate.is_empty() {
        headers.insert(TRACESTATE.into(), current.tracestate.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::{
        Context,
        trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState, TracerProvider},
    };
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    fn event() -> Event {
        Event::to("t.x").event_type("X").aggregate("thing", "1")
    }

    /// The setup of an application.
    fn with_telemetry(test: impl FnOnce()) {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let subscriber =
            tracing_subscriber::registry().with(tracing_opentelemetry::layer().with_tracer(tracer));
        tracing::subscriber::with_default(subscriber, test);
    }

    fn in_a_trace(test: impl FnOnce()) {
        with_telemetry(|| {
            let parent = SpanContext::new(
                TraceId::from(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c),
                SpanId::from(0xb7ad_6b71_6920_3331),
                TraceFlags::SAMPLED,
                true,
                TraceState::from_key_value([("vendor", "value")]).unwrap(),
            );
            let span = tracing::info_span!("request");
            span.set_parent(Context::new().with_remote_span_context(parent))
                .unwrap();
            span.in_scope(test);
        });
    }

    #[test]
    fn an_event_belongs_to_the_trace_of_the_current_span() {
        in_a_trace(|| {
            let events = [event(), event()];
            let traced = traced(&events, &Limits::default());
            for event in &*traced {
                let parent = &event.headers[TRACEPARENT];
                assert!(
                    parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"),
                    "{parent}"
                );
                assert!(
                    !parent.contains("b7ad6b7169203331"),
                    "the span itself is the parent: {parent}"
                );
                assert!(parent.ends_with("-01") && parent.len() == 55, "{parent}");
                assert_eq!(event.headers[TRACESTATE], "vendor=value");
            }
        });
    }

    #[test]
    #[cfg(feature = "consume")]
    fn a_span_can_belong_to_the_trace_that_came_with_an_event() {
        const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        with_telemetry(|| {
            let span = tracing::info_span!("handle");
            adopt(&span, PARENT, "vendor=value");
            span.in_scope(|| {
                let traced = traced(&[event()], &Limits::default()).into_owned();
                let parent = &traced[0].headers[TRACEPARENT];
                assert!(
                    parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"),
                    "{parent}"
                );
                assert_eq!(traced[0].headers[TRACESTATE], "vendor=value");
            });
            for nonsense in [
                "",
                "00-x-y-z",
                &PARENT[1..],
                "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            ] {
                let span = tracing::info_span!("handle");
                adopt(&span, nonsense, "");
                span.in_scope(|| {
                    let traced = traced(&[event()], &Limits::default()).into_owned();
                    assert!(!traced[0].headers[TRACEPARENT].contains("0af7651916cd"));
                });
            }
        });
    }

    #[test]
    fn an_event_keeps_a_context_of_its_own() {
        in_a_trace(|| {
            let own = event().header(TRACEPARENT, "00-own");
            let only = std::slice::from_ref(&own);
            assert_eq!(*traced(only, &Limits::default()), *only);
            let both = [own.clone(), event()];
            let traced = traced(&both, &Limits::default());
            assert_eq!(traced[0], own);
            assert!(traced[1].headers.contains_key(TRACEPARENT));
        });
    }

    #[test]
    fn without_a_span_or_without_telemetry_nothing_is_added() {
        let events = [event()];
        assert_eq!(*traced(&events, &Limits::default()), events);
        with_telemetry(|| assert_eq!(*traced(&events, &Limits::default()), events));
    }

    #[test]
    fn a_trace_never_makes_an_event_too_large() {
        in_a_trace(|| {
            let limits = Limits::default();
            let mut full = event();
            for n in 0..limits.headers_max - 1 {
                full = full.header(format!("h{n}"), "x");
            }
            let large = event().header("h", "x".repeat(limits.headers_bytes_max - 50));
            for event in [full, large] {
                let only = std::slice::from_ref(&event);
                assert!(*traced(only, &limits) == *only);
            }
        });
    }
}
