//! Fuzzes the checks: schemas and rules that nobody would write on purpose.

use std::sync::LazyLock;

use pillarbox::{Event, Limits};
use pillarbox_relay::check::{
    CheckOptions, Checks, Finding, OnFailure,
    rules::RuleOptions,
    schemas::{SchemaOptions, SchemaSource},
};
use pillarbox_testkit::{
    fuzz::{self, Fuzz, SECRET, assert_says_something},
    torture::Campaign,
};
use serde_json::Value;

const SCHEMA: &str = r##"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "order", "type": "object", "required": ["number", "lines"], "additionalProperties": false,
  "$defs": { "line": { "type": "object", "properties": { "sku": { "type": "string", "pattern": "^[a-z]{2}-[0-9]+$" },
    "parts": { "type": "array", "items": { "$ref": "#/$defs/line" } } } } },
  "properties": {
    "number": { "type": "integer", "minimum": 1, "multipleOf": 1 },
    "state": { "enum": ["new", "paid"] }, "kind": { "const": "order" },
    "mail": { "type": "string", "format": "email", "maxLength": 90 },
    "lines": { "type": "array", "minItems": 1, "uniqueItems": true, "items": { "$ref": "#/$defs/line" } },
    "extra": { "anyOf": [{ "type": "null" }, { "not": { "type": "string" } }], "if": { "type": "object" }, "then": { "minProperties": 1 } }
  },
  "patternProperties": { "^x-": { "type": ["string", "number"] } }, "propertyNames": { "maxLength": 40 }
}"##;

/// References that lead back to themselves.
const CIRCLES: &[&str] = &[
    r##"{"$ref": "#"}"##,
    r##"{"allOf": [{"$ref": "#"}]}"##,
    r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}"##,
    r##"{"$dynamicAnchor": "node", "properties": {"lines": {"$dynamicRef": "#node"}}, "items": {"$dynamicRef": "#node"}}"##,
    r##"{"$ref": "OrderPlaced.json"}"##,
];

const RULES: &[&str] = &[
    "size(payload.lines) > 0",
    "payload.lines.all(line, line.sku.startsWith('ab-') || line.sku.matches('^[a-z]+-[0-9]+$'))",
    "has(payload.total) ? payload.total >= 0 && payload.total < 1000000 : event_type != 'OrderPaid'",
    "headers['traceparent'] != '' && (aggregate_version > 3 || key in ['a', 'b'])",
    "payload.lines.filter(l, l.n > 1).map(l, l.n * 2).exists_one(n, n == 4) == false",
    "duration('1h') < duration('90m') && timestamp('2026-01-01T00:00:00Z') > timestamp('2025-01-01T00:00:00Z')",
];

/// Every text value in it is the secret.
static PAYLOAD: LazyLock<String> = LazyLock::new(|| {
    format!(
        r#"{{"number": 7, "state": "{SECRET}", "kind": "{SECRET}", "mail": "{SECRET}", "total": 12.5, "x-a": "{SECRET}", "extra": {{"a": "{SECRET}"}},
            "lines": [{{"sku": "{SECRET}", "n": 2, "parts": [{{"sku": "{SECRET}"}}]}}, {{"sku": "ab-1", "n": 18446744073709551615}}]}}"#
    )
});

/// An event as a store can return it: within the limits. `None` if the payload is not.
fn event(payload: String) -> Option<Event> {
    let event = Event::to("shop.order.placed")
        .event_type("OrderPlaced")
        .aggregate("order", "a")
        .header("traceparent", SECRET)
        .payload(payload);
    Limits::default()
        .check(&event, jiff::Timestamp::now())
        .is_ok()
        .then_some(event)
}

fn payload(fuzz: &mut Fuzz) -> String {
    match fuzz.below(3) {
        0 => PAYLOAD.clone(),
        1 => fuzz.json(),
        _ => fuzz.mutated_text(&PAYLOAD),
    }
}

/// Checks an event, and checks that no failure shows a value of its payload.
fn look(checks: &Checks, payload: String, runtime: &tokio::runtime::Runtime) {
    let Some(event) = event(payload) else { return };
    let findings = runtime.block_on(checks.look(&[(1, &event)], None)).unwrap();
    assert_eq!(findings.len(), 1);
    let Finding::Failed(failures) = &findings[0] else {
        return;
    };
    assert!(!failures.is_empty());
    // Failures show property names, because people must find the place.
    let shown_by_name =
        serde_json::from_slice(&event.payload).is_ok_and(|payload| names_the_secret(&payload));
    for failure in failures {
        let text = failure.to_string();
        match shown_by_name {
            true => assert_says_something(&text.replace(SECRET, "")),
            false => assert_says_something(&text),
        }
    }
}

/// Either the checks run on the payload, or creating them fails with a message that contains `named`.
fn attempt(options: &CheckOptions, payload: String, runtime: &tokio::runtime::Runtime, named: &str) {
    match Checks::new(options, None) {
        Ok(checks) => look(&checks, payload, runtime),
        Err(error) => {
            let text = error.to_string();
            assert_says_something(&text);
            assert!(text.contains(named), "{text}");
        }
    }
}

fn names_the_secret(value: &Value) -> bool {
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(name, value)| name.contains(SECRET) || names_the_secret(value)),
        Value::Array(list) => list.iter().any(names_the_secret),
        _ => false,
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Mangled schema files: each is refused with its name, or checks payloads without showing their values.
///
/// A refusal also has the reason.
#[test]
fn torture_fuzz_schemas() {
    let campaign = Campaign::begin("fuzz_schemas");
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let input = |fuzz: &mut Fuzz| {
        let schema = match fuzz.one_in(5) {
            true => fuzz.pick(CIRCLES),
            false => SCHEMA,
        };
        (fuzz.mutated(schema.as_bytes()), payload(fuzz))
    };
    fuzz::each(&campaign, input, move |(schema, payload)| {
        std::fs::write(folder.path().join("OrderPlaced.json"), &schema).unwrap();
        let options = CheckOptions {
            schemas: Some(SchemaOptions {
                source: SchemaSource::Folder(folder.path().to_owned()),
                missing_passes: false,
                on_failure: OnFailure::Reject,
            }),
            ..CheckOptions::default()
        };
        attempt(&options, payload, &runtime, "OrderPlaced.json");
    });
}

/// Mangled rules: each is refused with its name, or ends on any payload without showing its values.
///
/// A refusal also has the reason.
#[test]
fn torture_fuzz_rules() {
    let campaign = Campaign::begin("fuzz_rules");
    let runtime = runtime();
    let input = |fuzz: &mut Fuzz| {
        let rule = fuzz.pick(RULES);
        (fuzz.mutated_text(rule), payload(fuzz))
    };
    fuzz::each(&campaign, input, move |(rule, payload)| {
        let options = CheckOptions {
            rules: vec![RuleOptions {
                name: "fuzzed".into(),
                event_type: "*".into(),
                rule,
                message: None,
                on_failure: OnFailure::Reject,
            }],
            ..CheckOptions::default()
        };
        attempt(&options, payload, &runtime, "the rule `fuzzed` can't be used: ");
    });
}
