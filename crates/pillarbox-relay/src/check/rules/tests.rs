use pillarbox::Event;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn rule(text: &str) -> Result<Rule, RuleError> {
    Rule::compile(&RuleOptions {
        name: "r".into(),
        event_type: "*".into(),
        rule: text.into(),
        message: None,
        on_failure: OnFailure::Reject,
    })
}

fn check(text: &str, payload: Value) -> Option<Failure> {
    let event = Event::to("shop.x")
        .event_type("OrderPlaced")
        .aggregate("order", "o-1")
        .header("tenant", "acme")
        .aggregate_version(3);
    rule(text).unwrap().check(&Subject::new(&event, &payload))
}

fn refused(text: &str) -> String {
    rule(text).err().unwrap().to_string()
}

#[test]
fn a_rule_reads_the_payload_the_headers_and_the_events_fields() {
    let payload = json!({ "stores_involved": ["a"], "total": 9.5, "n": 3, "big": u64::MAX, "none": null });
    for holds in [
        "size(payload.stores_involved) > 0",
        "payload.total > 9 && payload.n >= 3 && payload.n < 3.5",
        "payload.big > 1u && payload.none == null",
        "headers.tenant == 'acme' && 'tenant' in headers",
        "event_type.startsWith('Order') && schema_version == 1 && aggregate_version == 3",
        "topic == 'shop.x' && key == aggregate_id && aggregate_type == 'order' && user_id == null",
        "payload.stores_involved.all(s, s != '') && !payload.stores_involved.exists(s, s == 'b')",
        "payload.stores_involved.map(s, s + '!') == ['a!']",
        "payload.stores_involved.filter(s, s == 'a').size() == 1",
        "has(payload.total) && !has(payload.discount)",
        "payload.stores_involved[0].matches('^[a-z]$')",
        "type(payload.n) == int",
    ] {
        assert_eq!(check(holds, payload.clone()), None, "{holds}");
    }
}

#[test]
fn a_failure_names_the_rule_and_its_fields() {
    let failure = check(
        "size(payload.stores_involved) > 0",
        json!({ "stores_involved": [] }),
    )
    .unwrap();
    assert_eq!(failure.check, "rule `r`");
    assert_eq!(failure.path, "payload.stores_involved");
    assert!(failure.problem.contains("does not hold"), "{failure}");
}

#[test]
fn a_missing_field_fails_the_check_and_is_named() {
    let failure = check("size(payload.stores_involved) > 0", json!({})).unwrap();
    assert!(
        failure.problem.contains("there is no `stores_involved`"),
        "{failure}"
    );
    assert!(check("payload.a.b > 1", json!({ "a": 1 })).is_some());
    assert!(check("payload > 1", json!([])).is_some());
}

#[test]
fn a_rule_that_returns_no_bool_fails_the_check() {
    let failure = check("payload.n", json!({ "n": 1 })).unwrap();
    assert!(failure.problem.contains("neither true nor false"), "{failure}");
}

#[test]
fn no_value_of_the_payload_is_shown() {
    let payload = json!({ "card": "4111-secret", "n": 0, "list": ["4111-secret"], "when": "4111-secret" });
    for rule in [
        "payload.card == 'x'",
        "payload.card > 1",
        "payload.card / 1 == 2",
        "payload[payload.card] == 1",
        "int(payload.card) == 1",
        "timestamp(payload.when) > timestamp('2020-01-01T00:00:00Z')",
        "duration(payload.when) > duration('1s')",
        "payload.list[payload.card] == 1",
        "payload.list.all(x, x > 3)",
        "payload.card",
        "1 / payload.n == payload.card",
        "payload.card.matches(payload.card + '[')",
        "payload.card.nothing",
    ] {
        let failure = check(rule, payload.clone()).unwrap_or_else(|| panic!("{rule} holds"));
        assert!(!failure.to_string().contains("4111"), "{rule}: {failure}");
    }
}

#[test]
fn a_rule_that_cannot_be_parsed_is_refused_with_its_place() {
    assert!(
        refused("payload.a >").contains("line 1 column"),
        "{}",
        refused("payload.a >")
    );
    assert!(refused("paylod.a > 1").contains("there is no `paylod`"));
    assert!(
        refused("sizee(payload.a) > 1").contains("sizee"),
        "{}",
        refused("sizee(payload.a) > 1")
    );
    assert!(refused(&"1".repeat(RULE_CHARS_MAX + 1)).contains("longer"));
    assert!(
        refused("payload.a.sizee() > 1").contains("sizee"),
        "{}",
        refused("payload.a.sizee() > 1")
    );
    assert!(refused("").contains("can't be used"));
}

#[test]
fn loops_in_loops_are_limited_where_they_are_written_and_where_they_run() {
    let deep = "payload.a.all(a, payload.a.all(b, payload.a.all(c, payload.a.all(d, a + b + c + d >= 0))))";
    assert!(refused(deep).contains("loops"));
    let many: Vec<u32> = (0..3_000).collect();
    for slow in [
        "payload.a.all(x, payload.a.all(y, x + y >= 0))",
        "size(payload.a.map(x, payload.a.map(y, x + y))) > 0",
        "size(payload.a.filter(x, payload.a.exists_one(y, x == y))) > 0",
        "payload.a.all(x, payload.a.exists(y, y < 0) || true)",
    ] {
        let failure = check(slow, json!({ "a": many })).unwrap_or_else(|| panic!("{slow} ran to its end"));
        assert!(failure.problem.contains("too long"), "{slow}: {failure}");
    }
    assert_eq!(check("payload.a.all(x, x >= 0)", json!({ "a": many })), None);
}

#[test]
fn a_star_in_an_event_type_stands_for_any_text() {
    for (pattern, text, expected) in [
        ("*", "", true),
        ("OrderPlaced", "OrderPlaced", true),
        ("OrderPlaced", "OrderPlacedLate", false),
        ("STORAGE_TRANSACTION_*", "STORAGE_TRANSACTION_", true),
        ("STORAGE_TRANSACTION_*", "STORAGE_TRANSACTION_DONE", true),
        ("STORAGE_TRANSACTION_*", "STORAGE", false),
        ("*_DONE", "A_DONE", true),
        ("A*B*C", "A-B-B-C", true),
        ("A*A", "A", false),
        ("A*B*C", "A-C-B", false),
    ] {
        assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn no_depth_of_a_rule_brings_the_process_down() {
    for (deep, refuse) in [
        (format!("{}true{}", "(".repeat(1_900), ")".repeat(1_900)), true),
        (format!("1{} > 0", "+1".repeat(1_900)), true),
        (format!("payload{} == 1", ".a".repeat(1_900)), true),
        (format!("{}1{} == []", "[".repeat(1_900), "]".repeat(1_900)), true),
        (format!("size({}1{}) > 0", "[".repeat(60), "]".repeat(60)), true),
        (format!("true{}", "?true:true".repeat(390)), true),
        // The parser removes pairs of these.
        (format!("{}true", "!".repeat(3_900)), false),
        (format!("{}1 == 1", "-".repeat(3_900)), false),
        (format!("1{} > 0", "+1".repeat(40)), false),
        (format!("{}1{} != []", "[".repeat(40), "]".repeat(40)), false),
    ] {
        let start: String = deep.chars().take(30).collect();
        match rule(&deep) {
            Err(_) => assert!(refuse, "{start} is refused"),
            Ok(_) => {
                assert!(!refuse, "{start} is taken");
                assert_eq!(check(&deep, json!(null)), None, "{start}");
            }
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{0,2}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The simple way: try every length that a star can match.
fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|n| matches_slowly(rest, &text[n..])),
        Some((byte, rest)) => text.first() == Some(byte) && matches_slowly(rest, &text[1..]),
    }
}

proptest! {
    #[test]
    fn a_compiled_pattern_matches_like_the_plain_one(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
        prop_assert_eq!(matches_pattern(&pattern, &text), matches_slowly(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn any_payload_can_be_looked_at_and_is_itself(payload in any_json()) {
        prop_assert_eq!(check("payload == payload", payload.clone()), None);
        for rule in ["size(payload.a) > 0", "payload.a.b == payload['c']", "payload.all(x, x != 1)", "payload[0] > 1"] {
            check(rule, payload.clone());
        }
    }

    #[test]
    fn any_text_is_a_rule_or_is_refused(text in ".{0,60}", tokens in "(payload|headers|[.()\\[\\]{}'\"+&|?:!<>=, ]|a|1|size|has|all|map){0,20}") {
        for text in [text, tokens] {
            if let Ok(rule) = rule(&text) {
                let event = Event::to("t").event_type("X").aggregate("a", "1");
                rule.check(&Subject::new(&event, &json!({ "a": [1, { "b": "c" }] })));
            }
        }
    }
}
