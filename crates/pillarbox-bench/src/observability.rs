//! The cost of metrics, logs and traces.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, json};

use super::{
    Findings, Host,
    arena::Arena,
    course::{Course, Drained},
    events::Maker,
    findings::{Rows, known},
    observer::{Collector, Scraper, free_address},
    relays::Setup,
};

/// Measure the cost of metrics, logs and traces
///
/// Delivers a backlog with all of them off, and the same number of events with all of them on:
/// metrics that are scraped once a second, logs at level info as JSON, and spans for a collector.
/// Half of the events with nothing on come first and half last, because machines drift. Reports the
/// ratio of the two rates. The events are read back: each once, in order.
///
/// The collector is a small server in this process that reads and drops what it receives.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many events with everything off and on
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(2..=50_000_000))]
    events: u32,
    /// The number of keys
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// The size of each payload, in bytes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    payload_bytes: u32,
    /// The share of events whose producer sampled its trace
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    sampled: f64,
    /// Send the spans to this collector instead
    #[arg(long, value_name = "URL")]
    collector: Option<String>,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "it must be a number from 0 to 1".to_owned())
}

#[derive(Serialize)]
struct Report {
    events: u64,
    sampled: f64,
    events_per_second_off: f64,
    events_per_second_on: f64,
    ratio: f64,
    /// The relay's processor time per event.
    cpu_microseconds_off: Option<f64>,
    cpu_microseconds_on: Option<f64>,
    scrapes: u64,
    /// Spans that the relay did not export, because the collector was too slow.
    spans_dropped: u64,
    /// `null` with a collector elsewhere.
    trace_bytes_per_event: Option<f64>,
    lost: Option<u64>,
    order_violations: Option<u64>,
}

pub(super) async fn run(args: &Args, arena: &Arena, host: &dyn Host) -> Result<Findings> {
    let mut maker =
        Maker::new(&arena.topic, args.keys as usize, args.payload_bytes as usize).traced(args.sampled);
    let half = u64::from(args.events) / 2;
    let mut course = Course::new(arena, host);
    let off = Setup {
        groups: Map::from_iter([("monitoring".to_owned(), json!({ "enable_metrics": false }))]),
        log: &["--log", "off"],
        ..Setup::default()
    };
    let before = course.drain(&mut maker, half, "everything off", &off).await?;
    let collector = match args.collector {
        Some(_) => None,
        None => Some(Collector::start().await?),
    };
    let endpoint = args.collector.clone().or_else(|| Some(collector.as_ref()?.url()));
    let scraper = Scraper::start(free_address()?);
    let tracing = json!({ "otlp_endpoint": endpoint });
    let monitoring = json!({ "listen": scraper.address, "tracing": tracing });
    let on = Setup {
        groups: Map::from_iter([("monitoring".to_owned(), monitoring)]),
        log: &["--log", "info", "--log-format", "json"],
        run: &["run", "--listen", "127.0.0.1:0"],
    };
    let with = course.drain(&mut maker, half * 2, "everything on", &on).await?;
    let (scrapes, spans_dropped) = scraper.stop();
    let after = course.drain(&mut maker, half, "everything off", &off).await?;
    let without = before.plus(&after);
    let check = course.check(&maker).await?;
    let report = Report {
        events: with.events,
        sampled: args.sampled,
        events_per_second_off: without.rate(),
        events_per_second_on: with.rate(),
        ratio: with.rate() / without.rate(),
        cpu_microseconds_off: without.cpu_microseconds(),
        cpu_microseconds_on: with.cpu_microseconds(),
        scrapes,
        spans_dropped,
        trace_bytes_per_event: collector.map(|collector| collector.bytes() as f64 / with.events as f64),
        lost: check.as_ref().map(|check| check.lost()),
        order_violations: check.as_ref().map(|check| check.order_violations),
    };
    report.findings(&without, &with)
}

impl Report {
    fn findings(&self, without: &Drained, with: &Drained) -> Result<Findings> {
        let mut rows = Rows::default();
        rows.add("events", format!("{} each way", self.events));
        rows.add("everything off", without.shown());
        rows.add("everything on", with.shown());
        rows.add("ratio", format!("{:.2}", self.ratio));
        let bytes = self.trace_bytes_per_event;
        let bytes = bytes.map_or("unknown".into(), |bytes| format!("{bytes:.0} bytes"));
        rows.add(
            "traces",
            format!(
                "{:.0} % of the events, {bytes} for each event, {} spans dropped",
                self.sampled * 100.0,
                self.spans_dropped
            ),
        );
        rows.add("scrapes", self.scrapes.to_string());
        rows.add("lost", known(self.lost));
        rows.add("out of order", known(self.order_violations));
        let broken = self.lost.unwrap_or(0) + self.order_violations.unwrap_or(0);
        Findings::new(self, rows, broken == 0)
    }
}
