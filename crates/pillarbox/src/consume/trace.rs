//! The trace context and the correlation id of an event. [`Event::follows`] passes them on.

use crate::{
    event::Event,
    wire::{CORRELATION_ID, TRACEPARENT, TRACESTATE},
};

/// W3C trace context, and the correlation id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The span that caused the event.
    pub traceparent: Option<String>,
    /// Additional data of tracing systems.
    pub tracestate: Option<String>,
    /// The business process that the event belongs to.
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
