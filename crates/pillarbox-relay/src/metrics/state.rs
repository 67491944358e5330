//! Metrics that are computed at each scrape, from the relay's progress and the latest sample of the outbox.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
};

use crate::{
    engine::{
        Progress, SinkState,
        progress::{AuditReport, ProgressReport},
    },
    pressure::{Level, Standing},
    scale::{self, Scale, ScaleLimits},
    settlement::DeadReason,
    store::Sample,
};

pub(super) struct State {
    pub(super) progress: Arc<Progress>,
    pub(super) scale: ScaleLimits,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl Collector for State {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut writer = Writer(encoder);
        let report = self.progress.report();
        self.relay(&mut writer, &report)?;
        self.sinks(&mut writer, &report)?;
        audits(&mut writer, &report)?;
        if let Some((sample, age)) = self.progress.sample() {
            writer.gauge(
                "sample_age_seconds",
                "Age of the figures about the database",
                age.as_secs_f64(),
            )?;
            outbox(&mut writer, &sample)?;
            table(&mut writer, &sample)?;
            backpressure(&mut writer, &sample.pressure)?;
            let sample = Some((sample, age));
            if let Some(scale) = scale::scale(sample.as_ref(), self.progress.drain(), &self.scale) {
                scaling(&mut writer, &scale)?;
            }
        }
        Ok(())
    }
}

impl State {
    fn relay(&self, writer: &mut Writer<'_>, report: &ProgressReport) -> fmt::Result {
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        writer.gauges("build_info", "The version of the relay", &[(build, 1_u64)])?;
        writer.counter("discovered", "Events that this relay read", report.read)?;
        writer.counter(
            "failed_attempts",
            "Failed attempts that were counted against an event",
            report.failed,
        )?;
        writer.counter(
            "held",
            "Events that had to wait behind a failing one",
            report.held,
        )?;
        writer.counter(
            "settled",
            "Events whose result is in the database",
            report.settled,
        )?;
        writer.counter(
            "swept",
            "Events that the sweep found and discovery had missed. Should stay 0",
            report.swept,
        )?;
        writer.counter(
            "validation_warnings",
            "Failed checks that only caused a warning",
            report.warned,
        )?;
        writer.counter(
            "database_statements",
            "Statements that this relay ran",
            report.statements,
        )?;
        let (exported, dropped) = self.progress.spans();
        writer.counter("trace_spans", "Spans that the trace collector accepted", exported)?;
        writer.counter(
            "trace_spans_dropped",
            "Spans that were not exported, because the trace collector was away or refused them",
            dropped,
        )?;
        writer.gauge(
            "window_events",
            "Events in memory: read and not yet settled",
            report.in_flight,
        )?;
        writer.gauge("relay_lanes", "Lanes that this relay works on", report.lanes)?;
        writer.gauge(
            "database_up",
            "1 if the relay reaches its database",
            u64::from(report.store_down.is_none()),
        )?;
        writer.gauge(
            "schema_registry_up",
            "1 if the schema registry answers, or if there is none",
            u64::from(report.schema_registry_down.is_none()),
        )?;
        writer.gauge(
            "stalled",
            "1 if the relay makes no progress",
            u64::from(report.stalled.is_some()),
        )?;
        writer.gauge(
            "loop_age_seconds",
            "Time since the relay's loop last ran. It runs every second",
            self.progress.silent_for().as_secs_f64(),
        )
    }

    fn sinks(&self, writer: &mut Writer<'_>, report: &ProgressReport) -> fmt::Result {
        let up = report.sinks.iter();
        let up: Vec<_> = up
            .map(|(sink, state)| ([("sink", sink.as_str())], u64::from(*state == SinkState::Up)))
            .collect();
        writer.gauges(
            "sink_up",
            "1 if the sink answers, 0 if it is away or has not answered yet",
            &up,
        )?;
        let outages = self.progress.sink_outages();
        let outages: Vec<_> = outages
            .iter()
            .map(|(sink, outage)| ([("sink", sink.as_str())], outage.as_secs_f64()))
            .collect();
        writer.counters(
            "sink_outage_seconds",
            "How long a sink was away, in total",
            &outages,
        )?;
        writer.gauge(
            "destinations_paused",
            "Streams, topics and partitions that accept nothing",
            report.paused.len() as u64,
        )
    }
}

/// A counter: its name, its help, and its value in a report.
type AuditCounter = (&'static str, &'static str, fn(&AuditReport) -> u64);

fn audits(writer: &mut Writer<'_>, report: &ProgressReport) -> fmt::Result {
    let counters: [AuditCounter; 5] = [
        (
            "audit_checked",
            "Delivered events that the audit looked up at the sink",
            |audit| audit.checked,
        ),
        (
            "audit_lost",
            "Of these, events that are gone, although no limit of the sink explains it. Should stay 0",
            |audit| audit.lost,
        ),
        (
            "audit_expired",
            "Of these, events that the sink has removed by its own limits",
            |audit| audit.expired,
        ),
        ("audit_copies", "Events that the audit found twice", |audit| {
            audit.copies
        }),
        (
            "audit_failed",
            "Audits that could not look up everything",
            |audit| audit.failed,
        ),
    ];
    for (name, help, value) in counters {
        let values = report.audits.iter();
        let values: Vec<_> = values
            .map(|(sink, audit)| ([("sink", sink.as_str())], value(audit)))
            .collect();
        if !values.is_empty() {
            writer.counters(name, help, &values)?;
        }
    }
    Ok(())
}

fn outbox(writer: &mut Writer<'_>, sample: &Sample) -> fmt::Result {
    let states = [
        ("pending", sample.pending),
        ("failed", sample.failed),
        ("held", sample.held),
        ("delayed", sample.delayed),
        ("dead", sample.dead.values().sum()),
    ];
    writer.gauges(
        "events",
        "Events that are not delivered, by state. Above 10,000 they are not counted exactly",
        &states.map(|(state, count)| ([("state", state)], count)),
    )?;
    writer.gauge(
        "events_pending_estimated",
        "1 if there are too many pending events to count them",
        u64::from(sample.pending_estimated),
    )?;
    writer.gauge(
        "keys_held",
        "Keys whose events wait behind a failing or a dead one. At most 10,000 events are looked at",
        sample.keys_held,
    )?;
    writer.gauge(
        "oldest_age_seconds",
        "Age of the oldest event that is pending, failed or held; 0 if there is none",
        sample.oldest_age.unwrap_or_default().as_secs_f64(),
    )?;
    let open = |reason: DeadReason| sample.dead.get(&reason).copied().unwrap_or_default();
    writer.gauges(
        "dead_letters",
        "Open dead letters",
        &DeadReason::ALL.map(|reason| ([("reason", reason.as_str())], open(reason))),
    )?;
    writer.gauge(
        "lanes_without_owner",
        "Lanes that no living relay has leased. Their events wait",
        u64::from(sample.lanes_without_owner),
    )?;
    writer.gauge("relays", "Relays that are alive", u64::from(sample.relays))
}

fn table(writer: &mut Writer<'_>, sample: &Sample) -> fmt::Result {
    if let Some(rows) = sample.rows {
        writer.gauge(
            "table_rows",
            "Events in the table, delivered ones too; estimated",
            rows,
        )?;
    }
    if let Some(bytes) = sample.table_bytes {
        writer.gauge("table_size_bytes", "Size of the table of events", bytes)?;
    }
    if let Some(bytes) = sample.index_bytes {
        writer.gauge("index_size_bytes", "Size of its indexes", bytes)?;
    }
    if let Some(updates) = sample.updates {
        writer.counter("table_updates", "Updates of rows in the table", updates.all)?;
        writer.counter(
            "table_hot_updates",
            "Those that wrote no index (HOT)",
            updates.hot,
        )?;
    }
    Ok(())
}

fn backpressure(writer: &mut Writer<'_>, classes: &[Standing]) -> fmt::Result {
    if classes.is_empty() {
        return Ok(());
    }
    let level = |class: &Standing| match class.producers {
        Level::Free => 0_u64,
        Level::Slowed => 1,
        Level::Refused => 2,
    };
    let levels: Vec<_> = classes
        .iter()
        .map(|class| ([("class", class.class.as_str())], level(class)))
        .collect();
    writer.gauges(
        "backpressure_level",
        "0 if producers are free, 1 if they are slowed down, 2 if they are refused",
        &levels,
    )?;
    let pending: Vec<_> = classes
        .iter()
        .map(|class| ([("class", class.class.as_str())], class.pending))
        .collect();
    writer.gauges(
        "backpressure_pending",
        "Upper bound of the pending events of a class",
        &pending,
    )
}

fn scaling(writer: &mut Writer<'_>, scale: &Scale) -> fmt::Result {
    writer.gauge(
        "delivered_per_second",
        "Events delivered by all relays, estimated from the last minute of this one",
        scale.delivered_per_second,
    )?;
    writer.gauge(
        "drain_seconds",
        "How long the pending events take at this rate; +Inf if nothing is delivered",
        scale.drain_seconds.unwrap_or(f64::INFINITY),
    )?;
    writer.gauge(
        "desired_relays",
        "How many relays the pending events want",
        u64::from(scale.desired_relays),
    )
}

/// Writes one metric at a time.
struct Writer<'a>(DescriptorEncoder<'a>);

type Label<'a> = [(&'a str, &'a str); 1];

impl Writer<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        let help = format!("{help}.");
        self.0
            .encode_descriptor(name, &help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    fn gauges<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: &[(Label<'_>, V)],
    ) -> fmt::Result {
        let help = format!("{help}.");
        let mut encoder = self.0.encode_descriptor(name, &help, None, MetricType::Gauge)?;
        for (label, value) in values {
            encoder.encode_family(label)?.encode_gauge(value)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let help = format!("{help}.");
        let encoder = self.0.encode_descriptor(name, &help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    fn counters<V: Copy>(&mut self, name: &str, help: &str, values: &[(Label<'_>, V)]) -> fmt::Result
    where
        ConstCounter<V>: EncodeMetric,
    {
        let help = format!("{help}.");
        let mut encoder = self.0.encode_descriptor(name, &help, None, MetricType::Counter)?;
        for (label, value) in values {
            ConstCounter::new(*value).encode(encoder.encode_family(label)?)?;
        }
        Ok(())
    }
}
