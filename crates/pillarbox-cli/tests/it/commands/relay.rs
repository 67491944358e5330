//! A relay: how it starts, waits, serves HTTP and ends.

use std::io::{Read, Write};

use serde_json::Value;

use super::*;

#[test]
fn a_missing_table_says_migrate() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["--database", "sqlite:x.db", "run", "--no-http"][..],
        &["--database", "sqlite:x.db", "status"],
    ] {
        let output = run(folder.path(), args);
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).contains("pillarbox migrate"),
            "{}",
            stderr(&output)
        );
    }
    let sql = stdout(&run(folder.path(), &["migrate", "--print"]));
    assert!(sql.contains("create table"), "{sql}");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "--print touches nothing"
    );
}

#[test]
fn a_database_that_is_away_ends_a_one_shot_command_and_makes_run_wait() {
    let folder = tempfile::tempdir().unwrap();
    let away = "postgres://app:geheim@127.0.0.1:1/shop";
    for command in [&["status"][..], &["migrate"], &["tail"]] {
        let output = run(folder.path(), &[&["--database", away], command].concat());
        assert_eq!(code(&output), 2, "{command:?}");
        assert!(!stderr(&output).contains("geheim"));
    }
    let relay = Running::start(folder.path(), &["--database", away, "run", "--no-http"]);
    let said = relay.says("Waiting for the database");
    assert!(!said.contains("geheim"), "{said}");
    relay.says("Retrying");
    assert_eq!(relay.stop().0, 0);
}

#[test]
fn a_relay_serves_its_status_and_health_and_sums_up_at_the_end() {
    let folder = migrated();
    let relay = Running::start(folder.path(), &["run", "--listen", "127.0.0.1:0"]);
    let said = relay.says("Serving http://");
    let address = said
        .trim_start_matches("Serving http://")
        .trim_end_matches('/')
        .to_owned();
    relay.says("Relaying from");
    let get = |path: &str, host: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    for (path, part) in [
        ("/livez", "alive"),
        ("/readyz", "ready"),
        ("/v1/status", "\"pending\":0"),
        ("/", "<title>Pillarbox</title>"),
    ] {
        let answer = get(path, "localhost");
        assert!(
            answer.starts_with("HTTP/1.0 200") && answer.contains(part),
            "{path}: {answer}"
        );
    }
    assert!(get("/v1/status", "elsewhere.example").starts_with("HTTP/1.0 421"));
    assert!(get("/v1/stream?after=x", "localhost").starts_with("HTTP/1.0 400"));

    let second = run(folder.path(), &["run", "--listen", &address]);
    assert_eq!(code(&second), 2);
    assert!(
        stderr(&second).contains("another program") && stderr(&second).contains("--listen"),
        "{}",
        stderr(&second)
    );
    assert_eq!(relay.stop().0, 0);

    let relay = Running::start(folder.path(), &["run", "--json", "--no-http"]);
    until_blocking("the relay appears", || {
        let status = json(&run(folder.path(), &["status", "--json"]));
        !status["relays"].as_array().unwrap().is_empty()
    });
    let (exit, out) = relay.stop();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(exit, 0);
    for key in [
        "published",
        "dead",
        "statements",
        "cpu_seconds",
        "peak_bytes",
        "seconds",
        "relay",
    ] {
        assert!(!summary[key].is_null(), "{key}: {out}");
    }
}

#[test]
fn a_route_chooses_the_envelope() {
    let folder = migrated();
    let yaml = "outbox:\n  sinks: { out: { url: 'stdout:' } }\n  routes:\n    \
                - { topic: 'a.>', sink: out, envelope: cloudevents, source: /shop }\n    \
                - { topic: 'b.>', sink: out, envelope: debezium }\n    \
                - { topic: '>', sink: out }\n";
    let file = folder.path().join("pillarbox.yaml");
    std::fs::write(&file, yaml).unwrap();
    for topic in ["a.x", "b.x", "c.x"] {
        let flags = [
            "--type",
            "Placed",
            "--aggregate-type",
            "order",
            "--aggregate-id",
            "o-1",
            "--payload",
            "{\"n\":1}",
        ];
        let enqueued = run(
            folder.path(),
            &[&["enqueue", "--topic", topic][..], &flags].concat(),
        );
        assert_eq!(code(&enqueued), 0, "{}", stderr(&enqueued));
    }
    let relay = Running::start(folder.path(), &["run", "--no-http"]);
    until_none(folder.path(), "pending");
    let (_, out) = relay.stop();
    let lines: Vec<Value> = out
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let with = |name: &str| lines.iter().find(|line| !line[name].is_null());
    let cloud = with("specversion").unwrap();
    assert_eq!(
        (&cloud["source"], &cloud["data"]["n"]),
        (&"/shop".into(), &1.into())
    );
    let routed = with("headers").unwrap();
    assert_eq!(
        (&routed["topic"], &routed["headers"]["eventType"]),
        (&"b.x".into(), &"Placed".into())
    );
    assert_eq!(with("aggregate_type").unwrap()["topic"], "c.x");

    std::fs::write(&file, yaml.replace("envelope: debezium", "source: /x")).unwrap();
    let refused = run(folder.path(), &["config", "check"]);
    let said = stdout(&refused) + &stderr(&refused);
    assert_eq!(code(&refused), 1, "{said}");
    assert!(said.contains("envelope: cloudevents"), "{said}");
}
