//! `/metrics`: valid for Prometheus, and true. The alert rules.

use std::net::TcpStream;

use super::{dead_http::Served, http_access::ask, *};

/// Returns the status, the headers in lower case, and the body.
fn scrape(address: &str, accept: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("GET /metrics HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn until_scraped(address: &str, line: &str) -> String {
    wait::until_ok_blocking(|| {
        let (_, _, body) = scrape(address, "text/plain");
        if body.lines().any(|known| known == line) {
            return Ok(body);
        }
        Err(format!("no `{line}` in {body}"))
    })
}

/// Runs promtool. `None`: it is not installed.
fn promtool(args: &[&str], input: &str) -> Option<Output> {
    let mut child = Command::new(servers::prometheus()?.join("promtool"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

fn assert_passes(output: &Output) {
    assert_eq!(code(output), 0, "{}{}", stdout(output), stderr(output));
}

fn configure(folder: &Path, monitoring: &str) {
    let text = format!(
        "outbox:\n  sinks:\n    out: {{ url: \"null:\" }}\n  http: {{ listen: \"127.0.0.1:0\" }}\n  \
         routes: [{{ topic: \"t.>\", sink: out }}]\n{monitoring}"
    );
    std::fs::write(folder.join("pillarbox.yaml"), text).unwrap();
}

#[test]
fn metrics_are_valid_for_prometheus_and_count_deliveries_and_deaths() {
    let folder = migrated();
    configure(folder.path(), "");
    let events = line(1) + &line(2) + &line(3).replace("t.x", "lost.x");
    assert_eq!(
        code(&run_with_input(folder.path(), &["enqueue", "--ndjson"], &events)),
        0
    );
    let served = Served::start(folder.path(), &["run"]);
    until_scraped(&served.address, "outbox_settled_total 3");
    let text = until_scraped(&served.address, r#"outbox_events{state="dead"} 1"#);
    for line in [
        r#"outbox_published_total{sink="out"} 2"#,
        "outbox_delivered_total 2",
        r#"outbox_dead_total{reason="permanent_failure"} 1"#,
        r#"outbox_dead_letters{reason="permanent_failure"} 1"#,
        r#"outbox_event_type_failures_total{event_type="X"} 1"#,
        r#"outbox_events{state="pending"} 0"#,
        r#"outbox_sink_up{sink="out"} 1"#,
        r#"outbox_end_to_end_latency_seconds_count{sink="out"} 2"#,
        "outbox_lanes_without_owner 0",
        "outbox_relays 1",
        "outbox_relay_lanes 256",
        "outbox_table_rows 3",
        "outbox_database_up 1",
        "outbox_desired_relays 1",
    ] {
        assert!(text.lines().any(|known| known == line), "no `{line}` in {text}");
    }
    if let Some(checked) = promtool(&["check", "metrics"], &text) {
        assert_passes(&checked);
        let broken = promtool(&["check", "metrics"], "outbox_x{ 1\n").unwrap();
        assert_ne!(code(&broken), 0, "promtool accepts anything");
    }
    let (status, scale) = served.get("/v1/scale");
    assert_eq!(status, 200, "{scale}");
    assert_eq!(
        (
            &scale["pending"],
            &scale["relays"],
            &scale["desired_relays"],
            &scale["drain_seconds"]
        ),
        (&0.into(), &1.into(), &1.into(), &0.0.into()),
        "{scale}"
    );
    let (status, head, open) = scrape(
        &served.address,
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    );
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: application/openmetrics-text"),
        "{head}"
    );
    assert!(open.ends_with("# EOF\n"), "{open}");
    assert_eq!(served.relay.stop().0, 0);
}

#[test]
fn metrics_and_health_have_an_address_of_their_own_without_the_api() {
    let folder = migrated();
    configure(
        folder.path(),
        "  monitoring: { metrics_prefix: shop.outbox, listen: \"127.0.0.1:0\" }\n",
    );
    let relay = Running::start(folder.path(), &["run"]);
    let said = relay.says("Serving metrics and health checks at http://");
    let address = said
        .rsplit_once("http://")
        .unwrap()
        .1
        .trim_end_matches('/')
        .to_owned();
    until_scraped(&address, "shop_outbox_relay_lanes 256");
    let (_, _, body) = scrape(&address, "text/plain");
    assert!(!body.contains("\noutbox_"), "{body}");
    for (path, wanted) in [
        ("/livez", 200),
        ("/healthz", 200),
        ("/v1/status", 404),
        ("/", 404),
    ] {
        until_ok_blocking(|| {
            let mut stream = TcpStream::connect(&address).unwrap();
            // Any name is accepted here: a supervisor uses the machine's own.
            stream
                .write_all(format!("GET {path} HTTP/1.0\r\nHost: relay-1.example\r\n\r\n").as_bytes())
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            match answer.split(' ').nth(1) == Some(&wanted.to_string()) {
                true => Ok(()),
                false => Err(format!("{path}: {answer}")),
            }
        });
    }
    let host = "Host: relay-1.example";
    for (headers, wanted) in [
        (&[host][..], 200),
        (&[], 400),
        (&[host, host], 400),
        (&[host, "Origin: https://evil.example"], 403),
        (&[host, "Sec-Fetch-Site: cross-site"], 403),
    ] {
        let answer = ask(&address, "GET /metrics", headers, "", DEADLINE);
        assert_eq!(answer.status, wanted, "{headers:?}: {answer:?}");
    }
    assert_eq!(relay.stop().0, 0);

    configure(folder.path(), "  monitoring: { enable_metrics: false }\n");
    let served = Served::start(folder.path(), &["run"]);
    assert_eq!(scrape(&served.address, "*/*").0, 404, "they are off");
    assert_eq!(served.relay.stop().0, 0);
}

#[test]
fn the_alert_rules_pass_their_tests() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
    for args in [
        ["check", "rules", &format!("{folder}/alerts.yml")],
        ["test", "rules", &format!("{folder}/alerts_test.yml")],
    ] {
        if let Some(output) = promtool(&args, "") {
            assert_passes(&output);
        }
    }
}
