//! The cost of the checks before publishing.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Findings, Host,
    arena::Arena,
    course::{Course, Drained},
    events::Maker,
    findings::{Rows, known},
    relays::Setup,
};

/// Measure the cost of the checks before publishing
///
/// Delivers a backlog without checks, and the same number of events with a schema of 20 properties
/// and two rules. Half of the events without checks come first and half last, because machines
/// drift. Reports the ratio of the two rates. The events are read back: each once, in order.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many events without and with checks
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..=50_000_000))]
    events: u32,
    /// The number of keys
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
}

#[derive(Serialize)]
struct Report {
    events: u64,
    payload_bytes: usize,
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
    let folder = TempDir::new()?;
    std::fs::write(folder.path().join("BenchEvent.json"), schema().to_string())?;
    let validation = validation(&folder);
    let mut maker = Maker::rich(&arena.topic, args.keys as usize);
    let half = u64::from(args.events) / 2;
    let mut course = Course::new(arena, host);
    let (plain, checking) = (Setup::default(), Setup::with("validation", validation));
    let before = course.drain(&mut maker, half, "delivering", &plain).await?;
    let with = course.drain(&mut maker, half * 2, "checking", &checking).await?;
    let after = course.drain(&mut maker, half, "delivering", &plain).await?;
    let without = before.plus(&after);
    let check = course.check(&maker).await?;
    let report = Report {
        events: with.events,
        payload_bytes: maker.next().payload.len(),
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
        rows.add(
            "events",
            format!(
                "{} each way, payloads of {} bytes",
                self.events, self.payload_bytes
            ),
        );
        rows.add("without checks", without.shown());
        rows.add("with checks", with.shown());
        rows.add("ratio", format!("{:.2}", self.ratio));
        rows.add("lost", known(self.lost));
        rows.add("out of order", known(self.order_violations));
        let broken = self.lost.unwrap_or(0) + self.order_violations.unwrap_or(0);
        Findings::new(self, rows, broken == 0)
    }
}

fn validation(folder: &TempDir) -> Value {
    json!({
        "enable_schema_validation": true,
        "schema_folder": folder.path(),
        "schema_missing": "reject",
        "enable_business_rule_validation": true,
        "rules": [
            { "name": "stores-named", "event_type": "Bench*", "rule": "size(payload.stores_involved) > 0" },
            { "name": "paid", "event_type": "*",
              "rule": "payload.total >= 0 && payload.currency in ['EUR', 'CHF', 'USD']" },
        ],
    })
}

/// The schema for events of [`Maker::rich`]: 20 properties, each with more than its type.
fn schema() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 100 });
    let flag = json!({ "type": "boolean" });
    let properties = json!({
        "number": count, "key": count, "nth": count,
        "order_id": { "type": "string", "pattern": "^o-[0-9]+$" },
        "customer": name, "street": name, "city": name,
        "country": { "type": "string", "pattern": "^[A-Z]{2}$" },
        "email": { "type": "string", "pattern": "^[^@ ]+@[^@ ]+$" },
        "currency": { "enum": ["EUR", "CHF", "USD"] },
        "total": { "type": "number", "minimum": 0 },
        "discount": { "type": "number", "minimum": 0, "maximum": 1 },
        "quantity": { "type": "integer", "minimum": 1, "maximum": 1_000_000 },
        "status": { "enum": ["placed", "paid", "sent"] },
        "gift": flag, "express": flag,
        "placed_at": { "type": "string", "maxLength": 40 },
        "note": { "type": ["string", "null"] },
        "stores_involved": { "type": "array", "items": name, "minItems": 1, "maxItems": 10 },
        "tags": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 10 },
    });
    let required: Vec<&String> = properties
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
        .collect();
    json!({
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pillarbox_relay::check::schema::Schema;

    use super::*;

    #[test]
    fn the_schema_has_twenty_properties_and_accepts_the_payloads() {
        let made: Value = serde_json::from_slice(&Maker::rich("t", 3).next().payload).unwrap();
        assert_eq!(made.as_object().unwrap().len(), 20);
        let compiled = Schema::compile("bench", &schema(), "schemas://bench/", Arc::default()).unwrap();
        assert!(compiled.problems(&made).is_empty());
        assert_eq!(schema()["required"].as_array().unwrap().len(), 20);
        let mut wrong = made;
        wrong["total"] = json!(-1);
        assert_eq!(compiled.problems(&wrong).len(), 1);
    }
}
