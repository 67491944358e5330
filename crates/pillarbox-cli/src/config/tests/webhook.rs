//! Webhooks as sinks.

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn sink(url: &str, webhook: &str) -> String {
    format!("outbox:\n  sinks:\n    hooks:\n      url: '{url}'\n      webhook: {{ {webhook} }}\n")
}

#[test]
fn a_webhook_has_its_settings() {
    let text = sink(
        "https://h/hooks",
        &format!("secrets: [{SECRET}, {SECRET}], headers: {{ X-Team: shop }}, requests_max: 8, ca: ca.pem"),
    );
    let options = &settings_of(&text).unwrap().sinks[0].options;
    let webhook = &options.webhook;
    assert_eq!((webhook.secrets.len(), webhook.requests_max), (2, 8));
    assert_eq!(webhook.headers["x-team"], "shop");
    assert!(webhook.tls.ca.is_some() && webhook.tls.identity.is_none());
}

#[test]
fn a_webhook_that_cant_work_is_refused_and_shows_nothing_secret() {
    for (url, webhook, part) in [
        ("https://h/geheim#x", "", "has a `#`"),
        ("https:geheim", "", "https://host/path"),
        ("nats://h", "requests_max: 1", "only a sink at https://"),
        ("https://h/geheim", "requests_max: 0", "requests_max"),
        ("https://h/geheim", "requests_max: 1001", "1000"),
        ("https://h/geheim", "secrets: [geheim]", "begins with `whsec_`"),
        (
            "https://h/geheim",
            "headers: { 'a b': geheim }",
            "name of an HTTP header",
        ),
        (
            "https://h/geheim",
            "headers: { a: \"geheim\\n\" }",
            "does not allow",
        ),
        (
            "https://h/geheim",
            "headers: { Webhook-Id: geheim }",
            "sets `Webhook-Id` itself",
        ),
        ("https://h/geheim", "cert: a.pem", "both `cert` and `key`"),
    ] {
        let text = problems(&sink(url, webhook));
        assert!(text.contains(part), "`{part}` is missing: {text}");
        assert!(!text.contains("geheim"), "{text}");
    }
}

#[test]
fn the_address_the_secrets_and_the_headers_of_a_webhook_are_never_shown() {
    let text = sink(
        "https://geheim@h:8443/geheim?geheim",
        "secrets: [whsec_geheim], headers: { authorization: geheim }",
    );
    let (shown, value) = in_force(&load_text(&text, &[]).unwrap().config).unwrap();
    assert!(
        !shown.contains("geheim") && !value.to_string().contains("geheim"),
        "{shown}"
    );
    assert!(shown.contains("https://h:8443/***"), "{shown}");
    // Other addresses keep their paths.
    let text = "outbox:\n  monitoring: { tracing: { otlp_endpoint: 'https://h/v1/traces' } }\n";
    let (shown, _) = in_force(&load_text(text, &[]).unwrap().config).unwrap();
    assert!(shown.contains("https://h/v1/traces"), "{shown}");
}
