//! Limits on pending events.

use super::*;

fn classes(text: &str) -> String {
    format!("outbox:\n  backpressure:\n    classes: [{text}]\n")
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    for (text, part) in [
        ("{ name: a }", "give it a `soft` or a `hard` limit"),
        ("{ name: a, hard: 0 }", "a limit is 1 to"),
        ("{ name: a, soft: 5, hard: 5 }", "`soft` must be below `hard`"),
        (
            "{ name: a, hard: 5, never_refuse: true }",
            "can't be combined with",
        ),
        ("{ name: a, hard: 5, topics: ['a..b'] }", "not a topic pattern"),
        ("{ name: a, hard: 5, max_delay_ms: 60000 }", "the maximum is 5000"),
        ("{ name: '', hard: 5 }", "a name has 1 to 64"),
        ("{ name: a, hard: 5 }, { name: b, hard: 5 }", "put it last"),
        (
            "{ name: a, topics: [t], hard: 5 }, { name: a, hard: 5 }",
            "two classes `a`",
        ),
    ] {
        let said = problems(&classes(text));
        assert!(
            said.contains(part) && said.starts_with("a.yaml:3: "),
            "{text}: {said}"
        );
    }
    let many = (0..17).map(|n| format!("{{ name: c{n}, topics: [t{n}], hard: 5 }}"));
    let said = problems(&classes(&many.collect::<Vec<_>>().join(", ")));
    assert!(said.contains("the maximum is 16"), "{said}");
}

#[test]
fn nothing_is_limited_unless_asked_for() {
    assert!(settings_of("").unwrap().backpressure.is_none());
    let none = settings_of(&classes("")).unwrap().backpressure;
    assert!(
        none.is_some_and(|classes| classes.is_empty()),
        "these are removed"
    );
    assert!(!settings_of("").unwrap().unique_versions);
    let text =
        "{ name: bulk, topics: ['report.>'], soft: 20, hard: 100 }, { name: money, never_refuse: true }";
    let settings = settings_of(&classes(text)).unwrap();
    let [bulk, money] = settings.backpressure.as_deref().unwrap() else {
        panic!("{:?}", settings.backpressure);
    };
    assert_eq!((bulk.limit.soft, bulk.limit.hard), (Some(20), Some(100)));
    assert_eq!(bulk.limit.max_delay.as_millis(), 100);
    assert_eq!((money.limit.soft, money.limit.hard), (None, None));
}
