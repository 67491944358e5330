//! The report of a measurement, for people and for programs.

use anyhow::Result;
use serde::Serialize;

use super::findings::{Findings, Rows, known};

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) events: u64,
    pub(super) seconds: f64,
    pub(super) events_per_second: f64,
    pub(super) pure_events_per_second: Option<f64>,
    pub(super) naive_events_per_second: Option<f64>,
    pub(super) ratio_to_pure: Option<f64>,
    pub(super) ratio_to_naive: Option<f64>,
    pub(super) statements_per_event: f64,
    pub(super) hot_share: Option<f64>,
    pub(super) relay_cpu_seconds: Option<f64>,
    pub(super) relay_peak_bytes: Option<u64>,
    pub(super) database_growth_bytes: i64,
    pub(super) lost: u64,
    pub(super) duplicated: Option<u64>,
    pub(super) order_violations: Option<u64>,
    #[serde(flatten)]
    pub(super) latency: Option<Latency>,
}

#[derive(Serialize)]
pub(super) struct Latency {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Report {
    pub(super) fn findings(&self) -> Result<Findings> {
        let promises_kept = self.lost == 0 && self.order_violations.unwrap_or(0) == 0;
        Findings::new(self, rows(self), promises_kept)
    }
}

fn rows(report: &Report) -> Rows {
    let mut rows = Rows::default();
    let mut row = |name: &str, value: String| rows.add(name, value);
    row("events", format!("{} in {:.2} s", report.events, report.seconds));
    row("rate", rate(report.events_per_second));
    if let (Some(pure), Some(ratio)) = (report.pure_events_per_second, report.ratio_to_pure) {
        row(
            "bare client",
            format!("{}: we reach {ratio:.2} of it", rate(pure)),
        );
    }
    if let (Some(naive), Some(ratio)) = (report.naive_events_per_second, report.ratio_to_naive) {
        row(
            "hand-written loop",
            format!("{}: we reach {ratio:.1} times that", rate(naive)),
        );
    }
    if let Some(latency) = &report.latency {
        row(
            "commit to sink",
            format!(
                "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
                latency.p50_ms, latency.p99_ms, latency.max_ms
            ),
        );
    }
    row(
        "statements per event",
        format!("{:.4}", report.statements_per_event),
    );
    row(
        "HOT updates",
        report
            .hot_share
            .map_or("–".into(), |share| format!("{:.1} %", share * 100.0)),
    );
    let cpu = report
        .relay_cpu_seconds
        .map_or("unknown".into(), |seconds| format!("{seconds:.2} s"));
    let peak = report.relay_peak_bytes.map_or("unknown".into(), megabytes);
    row("relay", format!("{cpu} of processor time, {peak} at most"));
    row(
        "database growth",
        megabytes(report.database_growth_bytes.max(0).unsigned_abs()),
    );
    row("lost", report.lost.to_string());
    row("duplicated", known(report.duplicated));
    row("out of order", known(report.order_violations));
    rows
}

fn rate(per_second: f64) -> String {
    format!("{per_second:.0} events/s")
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
