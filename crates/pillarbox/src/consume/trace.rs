//! The trace and the correlation id that came with an event, and are carried on with those that follow from it.

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
        let header = |name: &str| {
            let (_, text) = event
                .headers
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name))?;
            Some(text.clone())
        };
        Self {
            traceparent: header(TRACEPARENT),
            tracestate: header(TRACESTATE),
            correlation_id: header(CORRELATION_ID),
        }
    }

    pub(super) fn follow(&self, mut event: Event) -> Event {
        if !event.headers.contains_key(TRACEPARENT)
            && let Some(parent) = &self.traceparent
        {
            event = event.header(TRACEPARENT, parent);
            if let Some(state) = &self.tracestate {
                event = event.header(TRACESTATE, state);
            }
        }
        match &self.correlation_id {
            Some(id) if !event.headers.contains_key(CORRELATION_ID) => event.header(CORRELATION_ID, id),
            _ => event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_carries_the_trace_on_unless_it_has_its_own() {
        let cause = Event::new("a", "A", "a", "1")
            .header("Traceparent", "00-cause")
            .header("tracestate", "x=1")
            .header("correlation-id", "c-1");
        let trace = Trace::of(&cause);
        let next = trace.follow(Event::new("b", "B", "b", "1"));
        for (name, text) in [
            ("traceparent", "00-cause"),
            ("tracestate", "x=1"),
            ("correlation-id", "c-1"),
        ] {
            assert_eq!(next.headers[name], text);
        }
        let own = trace.follow(Event::new("b", "B", "b", "1").header("traceparent", "00-own"));
        assert_eq!(own.headers["traceparent"], "00-own");
        assert!(!own.headers.contains_key("tracestate"), "of another trace");
    }
}
