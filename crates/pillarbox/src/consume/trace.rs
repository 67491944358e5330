//! The trace and the correlation id that came with an event. [`Event::follows`] carries them on.

use crate::event::Event;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const CORRELATION_ID: &str = "correlation-id";

/// W3C trace context, and the correlation id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub correlation_id: Option<String>,
}

impl Trace {
    pub(super) fn of(event: &Event) -> Self {
        let header = |name: &str| event.header_text(name).map(str::to_owned);
        Self {
            traceparent: header(TRACEPARENT),
            tracestate: header(TRACESTATE),
            correlation_id: header(CORRELATION_ID),
        }
    }
}
