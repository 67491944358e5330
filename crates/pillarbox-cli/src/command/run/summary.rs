//! The summary that a relay prints when it ends.

use std::time::Duration;

use anyhow::Result;
use pillarbox_relay::engine::progress::ProgressReport;
use serde_json::json;
use uuid::Uuid;

use crate::{output::Context, usage::usage};

pub(super) fn print(
    relay: Uuid,
    report: &ProgressReport,
    statements: u64,
    ran: Duration,
    context: &Context,
) -> Result<()> {
    let used = usage();
    if context.json {
        let mut summary = json!(report);
        summary["relay"] = json!(relay);
        summary["seconds"] = json!(ran.as_secs_f64());
        summary["statements"] = json!(statements);
        summary["cpu_seconds"] = json!(used.cpu_seconds);
        summary["peak_bytes"] = json!(used.peak_bytes);
        return context.print_json(&summary);
    }
    context.say(&format!(
        "Stopped after {:.1} s: {} published, {} failures, {} dead; {statements} statements, {:.2} s of processor time, at most {} MB of memory.",
        ran.as_secs_f64(),
        report.published,
        report.failed,
        report.dead,
        used.cpu_seconds.unwrap_or_default(),
        used.peak_bytes.unwrap_or_default() / 1_000_000,
    ));
    Ok(())
}
