//! The trace and the correlation id that came with an event, and are carried on with those that follow from it.

use std::collections::BTreeMap;

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

    pub(super) fn headers(&self) -> BTreeMap<String, String> {
        let headers = [
            (TRACEPARENT, &self.traceparent),
            (TRACESTATE, &self.tracestate),
            (CORRELATION_ID, &self.correlation_id),
        ];
        headers
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text.clone()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_follows_carries_on_what_came_however_its_names_were_written() {
        let cause = Event::new("a", "A", "a", "1")
            .header("Traceparent", "00-cause")
            .header("tracestate", "x=1")
            .header("Correlation-Id", "c-1");
        let next = Event::new("b", "B", "b", "1").follows(Uuid::nil(), &Trace::of(&cause).headers());
        for (name, text) in [
            ("traceparent", "00-cause"),
            ("tracestate", "x=1"),
            ("correlation-id", "c-1"),
        ] {
            assert_eq!(next.headers[name], text);
        }
    }
}
