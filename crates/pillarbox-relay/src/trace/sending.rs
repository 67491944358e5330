//! The spans of a batch that is being sent.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    SPANS_OF_AN_EVENT, Traces,
    otlp::{Attribute, Kind, Parent, Span, Spans, Value},
    parent::{EventTrace, span_id},
};
use crate::{
    event::StoredEvent,
    settlement::{DeadReason, FailedTry},
    sink::{Outcome, Outgoing, SinkError},
};

/// A batch with traced events. The ids of its spans are chosen before it is sent, because the messages contain them.
/// The spans are written when their results are known.
#[derive(Debug)]
pub(crate) struct Sending {
    traces: Arc<Traces>,
    sink: Arc<str>,
    began: Timestamp,
    /// The span of each event's attempt. 0: the event is not traced.
    attempts: Vec<u64>,
    /// It tries destinations that accept nothing. An outage can have any number of trials, so those that only show that
    /// it lasts get no span.
    trial: bool,
    /// Trials that failed, and when. They get a span if they are counted.
    unwritten: Vec<(usize, SinkError, Timestamp)>,
}

impl Sending {
    /// `None`: no event of the batch is traced.
    pub(super) fn begin<'a>(
        traces: &Arc<Traces>,
        sink: &Arc<str>,
        batch: impl ExactSizeIterator<Item = &'a StoredEvent>,
        began: Timestamp,
        seed: u64,
        trial: bool,
    ) -> Option<Self> {
        let mut attempts = Vec::new();
        let length = batch.len();
        for (index, stored) in batch.enumerate() {
            if EventTrace::of(&stored.event, traces.sample_ratio).is_some() {
                attempts.resize(length, 0);
                attempts[index] = span_id(seed, index as u64);
            }
        }
        let traced = attempts.iter().filter(|span| **span != 0).count();
        if traced > 0 && !traces.queue.has_room() {
            traces.queue.drop_spans(traced as u64 * SPANS_OF_AN_EVENT);
            return None;
        }
        (traced > 0).then(|| Self {
            traces: traces.clone(),
            sink: sink.clone(),
            began,
            attempts,
            trial,
            unwritten: Vec::new(),
        })
    }

    /// The event as it is sent: its `traceparent` names the span of this attempt. `None`: it is not traced.
    pub(crate) fn outgoing(&self, index: usize, stored: &StoredEvent) -> Option<Outgoing> {
        let (trace, attempt) = self.trace(index, stored)?;
        let event = StoredEvent {
            event: trace.with_parent(&stored.event, attempt),
            ..*stored
        };
        Some(Outgoing {
            first_traceparent: trace.traceparent.map(Arc::from),
            ..Outgoing::new(Arc::new(event))
        })
    }

    /// Writes a span for each attempt, and the others of the events that are delivered.
    pub(crate) fn answered<'a>(
        &mut self,
        batch: impl Iterator<Item = &'a StoredEvent>,
        outcomes: &[Outcome],
        now: Timestamp,
    ) {
        let mut spans = Spans::default();
        let mut unwritten = Vec::new();
        for (index, (stored, outcome)) in batch.zip(outcomes).enumerate() {
            let Some((trace, attempt)) = self.trace(index, stored) else {
                continue;
            };
            let way = self.way(stored, trace);
            match outcome {
                Outcome::NotTried => {}
                // If it may have arrived, a consumer continues from its span.
                Outcome::Failed(error) if self.trial && !error.in_doubt => {
                    unwritten.push((index, error.clone(), now));
                }
                Outcome::Failed(error) => way.attempt(attempt, self.began, now, Some(error), &mut spans),
                Outcome::Delivered => {
                    if stored.attempts == 0 {
                        way.wait(attempt, self.began, &mut spans);
                    }
                    way.attempt(attempt, self.began, now, None, &mut spans);
                    way.delivery(now, None, &mut spans);
                }
            }
        }
        self.traces.queue.push(&spans);
        self.unwritten = unwritten;
    }

    /// This attempt was counted as a failure. `death`: it was the last one.
    pub(crate) fn failed(
        &self,
        index: usize,
        stored: &StoredEvent,
        death: Option<(DeadReason, &FailedTry)>,
        now: Timestamp,
    ) {
        let Some((trace, attempt)) = self.trace(index, stored) else {
            return;
        };
        let mut spans = Spans::default();
        let way = self.way(stored, trace);
        if stored.attempts == 0 {
            way.wait(attempt, self.began, &mut spans);
        }
        if let Some((_, error, at)) = self.unwritten.iter().find(|(known, ..)| *known == index) {
            way.attempt(attempt, self.began, *at, Some(error), &mut spans);
        }
        if let Some((reason, failure)) = death {
            way.delivery(now, Some((reason, &failure.error)), &mut spans);
        }
        self.traces.queue.push(&spans);
    }

    fn trace<'a>(&self, index: usize, stored: &'a StoredEvent) -> Option<(EventTrace<'a>, u64)> {
        let attempt = self.attempts.get(index).copied().filter(|span| *span != 0)?;
        Some((EventTrace::of(&stored.event, self.traces.sample_ratio)?, attempt))
    }

    fn way<'a>(&'a self, stored: &'a StoredEvent, trace: EventTrace<'a>) -> Way<'a> {
        let system = self.traces.systems.get(&self.sink).copied();
        Way::new(stored, trace, Some((&self.sink, system.unwrap_or("unknown"))))
    }
}

/// The way of one event through the relay.
pub(super) struct Way<'a> {
    stored: &'a StoredEvent,
    trace: EventTrace<'a>,
    /// Its name, and its messaging system.
    sink: Option<(&'a str, &'static str)>,
    id: String,
}

impl<'a> Way<'a> {
    pub(super) fn new(
        stored: &'a StoredEvent,
        trace: EventTrace<'a>,
        sink: Option<(&'a str, &'static str)>,
    ) -> Self {
        let id = stored.event.id.to_string();
        Self {
            stored,
            trace,
            sink,
            id,
        }
    }

    /// From the write of the event, or its due time, to its delivery or death. All others are below it.
    pub(super) fn delivery(&self, end: Timestamp, death: Option<(DeadReason, &str)>, spans: &mut Spans) {
        let event_type = ("pillarbox.event_type", Value::Text(&self.stored.event.event_type));
        let mut attributes = vec![event_type];
        self.describe(&mut attributes);
        let reason = death.map(|(reason, _)| [("pillarbox.reason", Value::Text(reason.as_str()))]);
        let span = Span {
            parent: match self.trace.cause {
                0 => Parent::None,
                cause => Parent::Remote(cause),
            },
            name: ["deliver ", &self.stored.event.topic],
            start: self.start(end),
            attributes: &attributes,
            event: reason.as_ref().map(|reason| ("dead letter", &reason[..])),
            error: death.map(|(_, error)| error),
            ..self.span(self.trace.delivery, end)
        };
        spans.push(&span);
    }

    /// Until the first attempt that counts.
    fn wait(&self, attempt: u64, sent: Timestamp, spans: &mut Spans) {
        let span = Span {
            name: ["wait", ""],
            start: self.start(sent),
            ..self.span(span_id(attempt, 1), sent)
        };
        spans.push(&span);
    }

    fn attempt(
        &self,
        id: u64,
        start: Timestamp,
        end: Timestamp,
        error: Option<&SinkError>,
        spans: &mut Spans,
    ) {
        let mut attributes = vec![
            ("messaging.operation.name", Value::Text("publish")),
            ("messaging.operation.type", Value::Text("send")),
            (
                "pillarbox.attempt",
                Value::Number(u64::from(self.stored.attempts) + 1),
            ),
        ];
        self.describe(&mut attributes);
        attributes.extend(error.map(|error| ("error.type", Value::Text(error.kind.as_str()))));
        let span = Span {
            name: ["publish ", &self.stored.event.topic],
            kind: Kind::Producer,
            start: nanoseconds(start),
            attributes: &attributes,
            error: error.map(|error| &*error.message),
            ..self.span(id, end)
        };
        spans.push(&span);
    }

    fn describe<'b>(&'b self, attributes: &mut Vec<Attribute<'b>>) {
        attributes.push((
            "messaging.destination.name",
            Value::Text(&self.stored.event.topic),
        ));
        attributes.push(("messaging.message.id", Value::Text(&self.id)));
        if let Some((sink, system)) = self.sink {
            attributes.push(("messaging.system", Value::Text(system)));
            attributes.push(("pillarbox.sink", Value::Text(sink)));
        }
    }

    /// What the spans have in common. Its parent is the delivery.
    fn span(&self, id: u64, end: Timestamp) -> Span<'_> {
        Span {
            trace: self.trace.trace,
            id,
            parent: Parent::Local(self.trace.delivery),
            flags: self.trace.flags,
            state: self.trace.state,
            name: ["", ""],
            kind: Kind::Internal,
            start: 0,
            end: nanoseconds(end),
            attributes: &[],
            event: None,
            error: None,
        }
    }

    /// When the event began to wait. The producer's clock may be ahead.
    fn start(&self, end: Timestamp) -> u64 {
        let (created, due) = (self.stored.created_at, self.stored.event.available_at);
        nanoseconds(due.map_or(created, |due| due.max(created)).min(end))
    }
}

fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use pillarbox::Event;

    use super::{super::Options, *};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn stored() -> StoredEvent {
        StoredEvent {
            seq: 1,
            lane: 0,
            attempts: 0,
            created_at: Timestamp::UNIX_EPOCH,
            event: Event::to("t.x")
                .event_type("X")
                .aggregate("thing", "1")
                .header("traceparent", PARENT),
        }
    }

    #[test]
    fn a_full_queue_means_an_event_that_is_not_traced() {
        let options = Options::new("http://127.0.0.1:4318", []).unwrap();
        let traces = Arc::new(Traces::with_room_for(options, 1).unwrap());
        let (sink, event) = ("events".into(), stored());
        let batch = || std::iter::once(&event);
        let now = Timestamp::UNIX_EPOCH;
        let mut first = traces.begin(&sink, batch(), now, 1, false).unwrap();
        first.answered(batch(), &[Outcome::Delivered], now);
        assert!(traces.begin(&sink, batch(), now, 2, false).is_none(), "no room");
        assert_eq!(traces.dropped(), 3);
        traces.died_untried(&event, DeadReason::PoisonMessage, "x", now);
        assert_eq!(traces.dropped(), 4);
        let sent = traces.queue.take().unwrap();
        assert_eq!(sent.count, 3);
        traces.queue.sent(&sent);
        assert!(traces.begin(&sink, batch(), now, 3, false).is_some());
    }

    #[test]
    fn a_wait_begins_when_the_event_is_due() {
        let second = |n| Timestamp::from_second(n).unwrap();
        for (created, due, sent, begins) in [
            (5, None, 9, 5),
            (5, Some(7), 9, 7),
            (7, Some(5), 9, 7),
            (9, None, 8, 8),
        ] {
            let mut event = stored();
            event.created_at = second(created);
            event.event.available_at = due.map(second);
            let way = Way::new(&event, EventTrace::of(&event.event, 0.0).unwrap(), None);
            assert_eq!(way.start(second(sent)), begins as u64 * 1_000_000_000);
        }
    }
}
