//! The checks before publishing.

use super::*;

#[test]
fn checks_that_could_not_work_are_refused_with_what_to_do() {
    for (lines, key, part) in [
        (
            "enable_schema_validation: true",
            "enable_schema_validation",
            "Give a `schema_folder`",
        ),
        (
            "schema_folder: x",
            "schema_folder",
            "set `enable_schema_validation` to true",
        ),
        ("schema_registry_url: 'ftp://x'", "schema_registry_url", "http://"),
        (
            "enable_schema_validation: true, schema_folder: x, schema_registry_url: 'http://x'",
            "schema_registry_url",
            "leave out",
        ),
        (
            "schema_registry_cert: x",
            "schema_registry_cert",
            "`schema_registry_key` too",
        ),
        (
            "schema_registry_subject: '{event}-value'",
            "schema_registry_subject",
            "{event_type}",
        ),
        (
            "schema_registry_subject: fixed",
            "schema_registry_subject",
            "{topic}",
        ),
        ("schema_reload_seconds: 0", "schema_reload_seconds", "1 or more"),
        (
            "enable_business_rule_validation: true",
            "enable_business_rule_validation",
            "no `rules`",
        ),
        (
            "rules: [{ name: a, rule: 'true' }]",
            "rules",
            "set `enable_business_rule_validation`",
        ),
        (
            "rules: [{ name: a, rule: 'payload.x >' }]",
            "rules.0.rule",
            "line 1 column",
        ),
        (
            "rules: [{ name: a, rule: 'true' }, { name: a, rule: 'true' }]",
            "rules.1.name",
            "another rule",
        ),
        ("aggregate_versions: sometimes", "aggregate_versions", "off"),
    ] {
        let text = problems(&format!("outbox:\n  validation: {{ {lines} }}\n"));
        assert!(text.contains(key) && text.contains(part), "{lines}: {text}");
    }
}

#[test]
fn checks_can_stand_unused_where_their_switch_is_off() {
    let text = "outbox:\n  validation: { enable_schema_validation: false, schema_folder: x, \
                enable_business_rule_validation: false, rules: [{ name: a, rule: 'true' }] }\n";
    assert!(settings_of(text).unwrap().checks.options.is_empty());
    let text = text.replace("false", "true");
    let options = settings_of(&text).unwrap().checks.options;
    assert!(options.schemas.is_some() && options.rules.len() == 1);
}

#[test]
fn a_registrys_password_is_never_shown() {
    let text = "outbox:\n  validation: { enable_schema_validation: true, schema_registry_url: 'http://app:geheim@127.0.0.1:8081' }\n";
    let loaded = load_text(text, &[]).unwrap();
    let (shown, value) = in_force(&loaded.config).unwrap();
    assert!(
        !shown.contains("geheim") && !value.to_string().contains("geheim"),
        "{shown}"
    );
    assert!(shown.contains("app:***@127.0.0.1"), "{shown}");
    let broken = problems(&text.replace("http://app", "ftp://app"));
    assert!(!broken.contains("geheim"), "{broken}");
}
