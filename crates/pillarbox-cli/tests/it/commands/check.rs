//! `pillarbox check`: over a file, over pending events, and as part of `config check`.

use super::*;

const CONFIG: &str = "
outbox:
  sinks: { out: { url: 'null:' } }
  validation:
    enable_schema_validation: true
    schema_folder: schemas
    enable_business_rule_validation: true
    rules:
      - { name: small, event_type: X, rule: payload.n < 100, message: too many }
      - { name: odd, rule: payload.n % 2 == 1, on_failure: warn }
";

/// A folder with a configuration, a schema for `X`, and an outbox.
fn scene(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("schemas/X")).unwrap();
    let schema = r#"{ "properties": { "n": { "type": "integer", "minimum": 2 } } }"#;
    std::fs::write(folder.path().join("schemas/X/1.json"), schema).unwrap();
    std::fs::write(folder.path().join("pillarbox.yaml"), config).unwrap();
    let output = run(folder.path(), &["migrate"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    folder
}

#[test]
fn a_file_is_checked_and_the_exit_code_shows_the_result() {
    let folder = scene(CONFIG);
    let good = [line(3), line(5)].concat();
    let output = run_with_input(folder.path(), &["check", "-"], &good);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("2 checked, 0 failed, 0 with warnings only."));

    let mixed = [line(3), line(4), "\n".into(), line(1), line(101)].concat();
    std::fs::write(folder.path().join("events.ndjson"), &mixed).unwrap();
    let output = run(folder.path(), &["check", "events.ndjson"]);
    assert_eq!(code(&output), 1);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("line 2 ") && lines[0].contains(" X warns: rule `odd` at payload.n: "),
        "{text}"
    );
    assert!(
        lines[1].starts_with("line 4 ") && lines[1].contains("schema `X/1.json` at /n: "),
        "{text}"
    );
    assert!(
        lines[2].starts_with("line 5 ") && lines[2].contains("rule `small` at payload.n: too many"),
        "{text}"
    );

    let output = run(folder.path(), &["--json", "check", "events.ndjson"]);
    let values: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(values[1]["line"], 4);
    assert_eq!(values[1]["failures"][0]["path"], "/n");
    assert_eq!(
        values[3],
        serde_json::json!({ "checked": 4, "failed": 2, "warned": 1 })
    );

    for (input, said) in [("{\"topic\": 1}\n", "line 1"), ("nothing\n", "line 1")] {
        let output = run_with_input(folder.path(), &["check", "-"], input);
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
    assert_eq!(code(&run(folder.path(), &["check", "gone.ndjson"])), 2);
    assert_eq!(code(&run(folder.path(), &["check"])), 2);
    let refused = line(3).replace("\"t.x\"", "\"\"");
    let output = run_with_input(folder.path(), &["check", "-"], &refused);
    assert_eq!(code(&output), 1);
    assert!(
        stdout(&output).contains("`enqueue` would refuse it"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn pending_events_are_checked_and_stay_pending() {
    let folder = scene(CONFIG);
    assert_eq!(code(&run(folder.path(), &["check", "--pending"])), 0);
    let events: String = (0..2_500)
        .map(|n| line(n % 2 * 98 + 3 + n / 2 * 1_000_000))
        .collect();
    let output = run_with_input(folder.path(), &["enqueue", "-"], &[events, line(7)].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let output = run(folder.path(), &["--json", "check", "--pending"]);
    assert_eq!(code(&output), 1);
    let last: Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["checked"], &last["failed"]),
        (&2_501.into(), &2_499.into())
    );
    assert_eq!(json(&run(folder.path(), &["--json", "status"]))["pending"], 2_501);
}

#[test]
fn without_checks_there_is_nothing_to_run() {
    let folder = migrated();
    let output = run(folder.path(), &["check", "--pending"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("outbox.validation"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_broken_schema_or_rule_stops_a_relay_before_it_starts() {
    let folder = scene(CONFIG);
    assert_eq!(code(&run(folder.path(), &["config", "check"])), 0);
    std::fs::write(folder.path().join("schemas/X/1.json"), "{\n \"type\": }").unwrap();
    let output = run(folder.path(), &["config", "check"]);
    assert_eq!(code(&output), 1);
    let said = stderr(&output);
    assert!(
        said.contains("schemas/X/1.json") && said.contains("line 2 column"),
        "{said}"
    );
    for command in [&["run", "--no-http"][..], &["check", "--pending"]] {
        let output = run(folder.path(), command);
        assert_eq!(code(&output), 2, "{command:?}");
        assert!(stderr(&output).contains("X/1.json"), "{}", stderr(&output));
    }
    // Commands that run no checks still work.
    assert_eq!(code(&run(folder.path(), &["status"])), 0);
    std::fs::write(
        folder.path().join("pillarbox.yaml"),
        CONFIG.replace("payload.n < 100", "payload.n <"),
    )
    .unwrap();
    let output = run(folder.path(), &["run", "--no-http"]);
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    assert!(
        said.contains("pillarbox.yaml:") && said.contains("`small`") && said.contains("line 1 column"),
        "{said}"
    );
}

#[test]
fn versions_are_compared_within_a_file_and_with_what_was_let_through() {
    let folder =
        scene("outbox: { sinks: { out: { url: 'null:' } }, validation: { aggregate_versions: reject } }");
    let version = |id: u32, n: u32| {
        line(id)
            .replace(
                "\"aggregate_id\":",
                &format!("\"aggregate_version\":{n},\"partition_key\":\"k\",\"aggregate_id\":\"a\",\"x\":"),
            )
            .replace(&format!(",\"x\":\"{id}\""), "")
    };
    let stale = [version(1, 1), version(2, 2), version(3, 2)].concat();
    let output = run_with_input(folder.path(), &["check", "-"], &stale);
    assert_eq!(code(&output), 1, "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).starts_with("line 3 "), "{}", stdout(&output));

    // The same on SQLite: the relay, a restart, the index.
    assert_eq!(code(&run_with_input(folder.path(), &["enqueue", "-"], &stale)), 0);
    let waits = |wanted: (u64, u64)| {
        until_ok_blocking(|| {
            let status = json(&run(folder.path(), &["--json", "status"]));
            let found = (
                status["pending"].as_u64().unwrap(),
                status["dead"].as_u64().unwrap(),
            );
            if found == wanted { Ok(()) } else { Err(status) }
        });
    };
    let relay = Running::start(folder.path(), &["run", "--no-http"]);
    waits((0, 1));
    assert_eq!(relay.stop().0, 0);
    let more = [version(4, 2), version(5, 3)].concat();
    assert_eq!(code(&run_with_input(folder.path(), &["enqueue", "-"], &more)), 0);
    let output = run(folder.path(), &["check", "--pending"]);
    assert_eq!(code(&output), 1);
    assert!(
        stdout(&output).contains("2 does not come after 2"),
        "{}",
        stdout(&output)
    );
    let relay = Running::start(folder.path(), &["run", "--no-http"]);
    waits((0, 2));
    assert_eq!(relay.stop().0, 0);
}
