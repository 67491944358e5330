//! The OpenAPI document, tested by schemathesis: no answer is a 5xx, and none is undocumented.

use std::collections::BTreeSet;

use super::*;

const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

/// The id of each operation, and whether it answers with a stream, which does not end.
fn operations(document: &Value) -> Vec<(&str, bool)> {
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|item| item.as_object().unwrap().values());
    let described = operations.map(|operation| {
        let content = operation["responses"]["200"]["content"].as_object();
        let mut kinds = content.into_iter().flat_map(|content| content.keys());
        let streams = kinds.any(|kind| kind.contains("ndjson") || kind.contains("event-stream"));
        (operation["operationId"].as_str().unwrap(), streams)
    });
    described.collect()
}

#[test]
fn no_generated_request_gets_a_server_error_or_an_undocumented_answer() {
    let Some(python) = servers::schemathesis_python() else {
        return;
    };
    let folder = migrated();
    let args = ["--name", "tester", "--role", "produce", "--role", "operate"];
    let (token, entry) = new_token(folder.path(), &args);
    configure(
        folder.path(),
        &json!({ "listen": "127.0.0.1:0", "tokens": [entry] }),
    );
    super::super::dead_http::enqueue(folder.path(), &line(1).replace("t.x", "lost.x"));
    let served = Served::start(folder.path(), &["run"]);
    let token = bearer(&token);
    until_blocking(
        "the event is dead, and the relay has looked at the outbox",
        || {
            let status = |path: &str| get(&served, path, &[&token]).status;
            get(&served, "/v1/status", &[&token]).json()["store"]["dead"] == 1
                && status("/v1/scale") == 200
                && status("/healthz") == 200
        },
    );
    let document = get(&served, "/v1/openapi.json", &[&token]).json();
    assert_eq!(json(&run(folder.path(), &["openapi"])), document);
    let operations = operations(&document);
    let ids: BTreeSet<&str> = operations.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids.len(), operations.len(), "{ids:?}");

    let mut command = Command::new(python);
    command
        .current_dir(folder.path())
        .args(["-m", "schemathesis.cli", "run"])
        .arg(format!("http://{}/v1/openapi.json", served.address))
        .args(["--header", &token, "--checks", CHECKS])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "10"])
        .args(["--generation-deterministic", "--request-timeout", "10"])
        .args(["--max-failures", "5", "--no-color", "--warnings", "off"]);
    for (id, _) in operations.iter().filter(|(_, streams)| *streams) {
        command.args(["--exclude-operation-id", id]);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        stdout(&output),
        stderr(&output)
    );
    // It does not test the document itself.
    let tested = operations.iter().filter(|(_, streams)| !streams).count() - 1;
    assert!(
        stdout(&output).contains(&format!("Tested: {tested}\n")),
        "{}",
        stdout(&output)
    );
    let said: Vec<String> = served.relay.lines.try_iter().collect();
    assert!(!said.iter().any(|line| line.contains("panicked")), "{said:?}");
}
