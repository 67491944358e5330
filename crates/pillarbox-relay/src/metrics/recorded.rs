//! Counters and histograms that the engine records into, on the path of events.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use crate::{
    settlement::{DeadReason, Settlement},
    sink::SinkErrorKind,
};

/// Failures of more event types are counted together.
pub(crate) const EVENT_TYPES_MAX: usize = 50;
const OTHER_TYPES: &str = "other";

const PUBLISH_SECONDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
const END_TO_END_SECONDS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0,
    3_600.0,
];
const RETRY_SECONDS: [f64; 11] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0];

/// Clones share the counters.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    published: Family<SinkLabel, Counter>,
    publish_seconds: Family<SinkLabel, Histogram, fn() -> Histogram>,
    end_to_end_seconds: Family<SinkLabel, Histogram, fn() -> Histogram>,
    publish_errors: Family<ErrorLabels, Counter>,
    retry_delay_seconds: Histogram,
    event_type_failures: Family<EventTypeLabel, Counter>,
    /// How many types were new so far.
    event_types: Arc<AtomicUsize>,
    pub(crate) validation_errors: Counter,
    delivered: Counter,
    dead: Family<ReasonLabel, Counter>,
    pub(crate) lanes_taken: Counter,
    pub(crate) lanes_lost: Counter,
    pub(crate) stalls: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SinkLabel {
    sink: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    sink: Arc<str>,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventTypeLabel {
    event_type: String,
}

impl Default for Recorded {
    fn default() -> Self {
        let dead: Family<ReasonLabel, Counter> = Family::default();
        // Prometheus sees the first death only if the counter was at 0 before.
        for reason in DeadReason::ALL {
            let _zero = dead.get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            });
        }
        Self {
            published: Family::default(),
            publish_seconds: Family::new_with_constructor(|| Histogram::new(PUBLISH_SECONDS)),
            end_to_end_seconds: Family::new_with_constructor(|| Histogram::new(END_TO_END_SECONDS)),
            publish_errors: Family::default(),
            retry_delay_seconds: Histogram::new(RETRY_SECONDS),
            event_type_failures: Family::default(),
            event_types: Arc::default(),
            validation_errors: Counter::default(),
            delivered: Counter::default(),
            dead,
            lanes_taken: Counter::default(),
            lanes_lost: Counter::default(),
            stalls: Counter::default(),
        }
    }
}

/// The counters of one sink, looked up once for a batch.
pub(crate) struct SinkRecorder {
    published: Counter,
    end_to_end_seconds: Histogram,
}

impl SinkRecorder {
    /// `age` is the time since the event was written. Clocks may differ, so it can be negative: then it counts as 0.
    pub(crate) fn published(&self, age: jiff::SignedDuration) {
        self.published.inc();
        self.end_to_end_seconds.observe(age.as_secs_f64().max(0.0));
    }
}

impl Recorded {
    /// Begins the counters of a sink at 0, so that Prometheus sees their first increase.
    pub(crate) fn begin(&self, sink: &Arc<str>) {
        self.sink(sink);
        for kind in SinkErrorKind::ALL {
            let labels = ErrorLabels {
                sink: sink.clone(),
                kind: kind.as_str(),
            };
            let _zero = self.publish_errors.get_or_create(&labels);
        }
    }

    pub(crate) fn sink(&self, sink: &Arc<str>) -> SinkRecorder {
        let label = SinkLabel { sink: sink.clone() };
        SinkRecorder {
            published: self.published.get_or_create_owned(&label),
            end_to_end_seconds: self.end_to_end_seconds.get_or_create_owned(&label),
        }
    }

    /// A sink answered a batch after this time.
    pub(crate) fn answered(&self, sink: &Arc<str>, took: Duration) {
        let label = SinkLabel { sink: sink.clone() };
        self.publish_seconds
            .get_or_create(&label)
            .observe(took.as_secs_f64());
    }

    pub(crate) fn publish_error(&self, sink: &Arc<str>, kind: SinkErrorKind) {
        let labels = ErrorLabels {
            sink: sink.clone(),
            kind: kind.as_str(),
        };
        self.publish_errors.get_or_create(&labels).inc();
    }

    pub(crate) fn retry(&self, delay: Duration) {
        self.retry_delay_seconds.observe(delay.as_secs_f64());
    }

    /// An event of this type was charged a failure and waits for a retry, or is dead. Not for failures of a sink.
    pub(crate) fn event_failed(&self, event_type: &str) {
        let mut label = EventTypeLabel {
            event_type: event_type.to_owned(),
        };
        let known = self.event_type_failures.get(&label).is_some();
        if !known && self.event_types.fetch_add(1, Ordering::Relaxed) >= EVENT_TYPES_MAX {
            label.event_type = OTHER_TYPES.into();
        }
        self.event_type_failures.get_or_create(&label).inc();
    }

    pub(crate) fn settled(&self, settlement: &Settlement) {
        let delivered = settlement.published.len() + settlement.published_parked.len();
        self.delivered.inc_by(delivered as u64);
        for dead in &settlement.dead {
            let label = ReasonLabel {
                reason: dead.reason.as_str(),
            };
            self.dead.get_or_create(&label).inc();
            if let Some(subject) = &dead.subject {
                self.event_failed(&subject.event_type);
            }
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let this = self.clone();
        registry.register("published", "Events that a sink has stored", this.published);
        registry.register(
            "publish_duration_seconds",
            "Time until a sink answered a batch",
            this.publish_seconds,
        );
        registry.register(
            "end_to_end_latency_seconds",
            "Time from the write of an event until a sink had stored it, by the clocks of producer and relay",
            this.end_to_end_seconds,
        );
        registry.register(
            "publish_errors",
            "Events that a sink did not store, by the kind of the error. Outages are included",
            this.publish_errors,
        );
        registry.register(
            "retry_delay_seconds",
            "How long failing events wait for their next attempt",
            this.retry_delay_seconds,
        );
        registry.register(
            "event_type_failures",
            "Failed attempts and deaths by event type. Types after the first 50 are counted as `other`",
            this.event_type_failures,
        );
        registry.register(
            "validation_errors",
            "Events that a schema, a rule or a version check refused",
            this.validation_errors,
        );
        registry.register(
            "delivered",
            "Events recorded as published in the database",
            this.delivered,
        );
        registry.register("dead", "Events that became dead letters", this.dead);
        registry.register("lanes_taken", "Lanes that this relay leased", this.lanes_taken);
        registry.register(
            "lanes_lost",
            "Lanes that another relay took because the lease had expired",
            this.lanes_lost,
        );
        registry.register(
            "stalls",
            "How often the relay made no progress and started over",
            this.stalls,
        );
    }
}
