//! Traces.

use super::*;

fn tracing(text: &str) -> String {
    format!("outbox:\n  monitoring:\n    tracing: {{ {text} }}\n")
}

#[test]
fn there_are_no_traces_without_a_collector() {
    assert!(settings_of("").unwrap().tracing.is_none());
    assert!(
        settings_of(&tracing("sample_ratio: 1"))
            .unwrap()
            .tracing
            .is_none()
    );
    let text = tracing("otlp_endpoint: 'http://127.0.0.1:4318'");
    let options = settings_of(&text).unwrap().tracing.unwrap();
    assert_eq!((&*options.service_name, options.sample_ratio), ("pillarbox", 0.0));
    assert_eq!(options.systems["stream"], "http-stream");
}

#[test]
fn a_collector_that_cant_work_is_refused_without_being_shown() {
    let endpoint = "otlp_endpoint: 'http://h:4318'";
    for (text, part) in [
        ("otlp_endpoint: 'grpc://geheim@h:4317'", "OTLP over HTTP"),
        ("otlp_endpoint: geheim", "OTLP over HTTP"),
        (
            &format!("{endpoint}, headers: {{ 'a b': geheim }}"),
            "name of an HTTP header",
        ),
        (
            &format!("{endpoint}, headers: {{ a: \"geheim\\n\" }}"),
            "the header a",
        ),
        (&format!("{endpoint}, sample_ratio: 10"), "between 0 and 1"),
        (&format!("{endpoint}, service_name: ''"), "1 to 255"),
    ] {
        let said = problems(&tracing(text));
        assert!(
            said.contains(part) && said.starts_with("a.yaml:3: "),
            "{text}: {said}"
        );
        assert!(!said.contains("geheim"), "{said}");
    }
}

#[test]
fn the_headers_of_a_collector_are_never_shown() {
    let text = tracing("otlp_endpoint: 'http://geheim@h:4318', headers: { authorization: geheim }");
    let loaded = load_text(&text, &[]).unwrap();
    let (shown, value) = in_force(&loaded.config).unwrap();
    assert!(
        !shown.contains("geheim") && !value.to_string().contains("geheim"),
        "{shown}"
    );
    assert!(shown.contains("authorization: \"***\""), "{shown}");
    let variables = [(
        "PILLARBOX_OUTBOX__MONITORING__TRACING__HEADERS__AUTHORIZATION",
        "Bearer x",
    )];
    let loaded = load_text(&tracing("otlp_endpoint: 'http://h:4318'"), &variables).unwrap();
    assert_eq!(
        loaded.config.outbox.monitoring.tracing.headers["authorization"],
        "Bearer x"
    );
}
