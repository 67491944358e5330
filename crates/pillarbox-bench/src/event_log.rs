//! The cost of the event log.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::{
    Findings, Host,
    arena::Arena,
    course::{Course, Drained},
    events::Maker,
    findings::{Rows, known},
    relays::Setup,
};

/// Measure the cost of the event log
///
/// Delivers a backlog without the log, and the same number of events with it. Half of the events
/// without the log come first and half last, because machines drift. Reports the ratio of the two
/// rates. The events are read back: each once, in order.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many events without and with the log
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(2..=50_000_000))]
    events: u32,
    /// The number of keys
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// The size of each payload, in bytes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    payload_bytes: u32,
}

#[derive(Serialize)]
struct Report {
    events: u64,
    events_per_second_without: f64,
    events_per_second_with: f64,
    ratio: f64,
    /// The relay's processor time per event.
    cpu_microseconds_without: Option<f64>,
    cpu_microseconds_with: Option<f64>,
    lost: Option<u64>,
    order_violations: Option<u64>,
}

pub(super) async fn run(args: &Args, arena: &Arena, host: &dyn Host) -> Result<Findings> {
    let mut maker = Maker::new(&arena.topic, args.keys as usize, args.payload_bytes as usize);
    let half = u64::from(args.events) / 2;
    let mut course = Course::new(arena, host);
    let (plain, logging) = (
        Setup::default(),
        Setup::with("event_log", json!({ "enabled": true })),
    );
    let before = course.drain(&mut maker, half, "without the log", &plain).await?;
    let with = course
        .drain(&mut maker, half * 2, "with the log", &logging)
        .await?;
    let after = course.drain(&mut maker, half, "without the log", &plain).await?;
    let without = before.plus(&after);
    let check = course.check(&maker).await?;
    let report = Report {
        events: with.events,
        events_per_second_without: without.rate(),
        events_per_second_with: with.rate(),
        ratio: with.rate() / without.rate(),
        cpu_microseconds_without: without.cpu_microseconds(),
        cpu_microseconds_with: with.cpu_microseconds(),
        lost: check.as_ref().map(|check| check.lost()),
        order_violations: check.as_ref().map(|check| check.order_violations),
    };
    report.findings(&without, &with)
}

impl Report {
    fn findings(&self, without: &Drained, with: &Drained) -> Result<Findings> {
        let mut rows = Rows::default();
        rows.add("events", format!("{} each way", self.events));
        rows.add("without the log", without.shown());
        rows.add("with the log", with.shown());
        rows.add("ratio", format!("{:.2}", self.ratio));
        rows.add("lost", known(self.lost));
        rows.add("out of order", known(self.order_violations));
        let broken = self.lost.unwrap_or(0) + self.order_violations.unwrap_or(0);
        Findings::new(self, rows, broken == 0)
    }
}
