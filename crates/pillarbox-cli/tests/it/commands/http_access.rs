//! Who may use the HTTP API: tokens, roles, scopes, and what is recorded about them.

mod description;
mod every_operation;
mod foreign;
mod jwt;
mod stream_errors;
mod tls;

use std::net::TcpStream;

use serde_json::json;

use super::{dead_http::Served, *};

/// What a server answered.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    /// In lower case.
    pub(super) head: String,
    pub(super) body: String,
}

impl Answered {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The text of an error.
    pub(super) fn error(&self) -> String {
        assert!(self.head.contains("content-type: application/json"), "{self:?}");
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// Sends a request with these lines of headers. A stream that does not end is read for `patience`.
pub(super) fn ask(
    address: &str,
    request: &str,
    headers: &[&str],
    body: &str,
    patience: Duration,
) -> Answered {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut head = format!("{request} HTTP/1.0\r\n");
    for line in headers {
        head.push_str(&format!("{line}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    // The answer may arrive, and the connection end, before the whole body is read.
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(&piece[..read]);
    }
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer to {request}: {text:?}"));
    Answered {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

const HOST: &str = "Host: localhost";
const JSON: &str = "Content-Type: application/json";

fn get(served: &Served, path: &str, headers: &[&str]) -> Answered {
    let headers = [&[HOST], headers].concat();
    ask(&served.address, &format!("GET {path}"), &headers, "", DEADLINE)
}

fn post(served: &Served, path: &str, token: &str, body: &Value) -> Answered {
    let token = bearer(token);
    let headers = [HOST, JSON, &token];
    ask(
        &served.address,
        &format!("POST {path}"),
        &headers,
        &body.to_string(),
        DEADLINE,
    )
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// Makes a token as people do. Returns it and its entry in the configuration.
pub(super) fn new_token(folder: &Path, args: &[&str]) -> (String, Value) {
    let output = run(folder, &[&["--json", "token", "new"], args].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let made = json(&output);
    let token = made["token"].as_str().unwrap().to_owned();
    (token, made["configuration"].clone())
}

/// Events without a route die, so there are letters to act on.
fn configure(folder: &Path, http: &Value) {
    let config = json!({ "outbox": {
        "sinks": { "out": { "url": "http-stream:" } },
        "routes": [{ "topic": "kept.>", "sink": "out" }],
        "http": http,
    } });
    std::fs::write(folder.join("pillarbox.yaml"), config.to_string()).unwrap();
}

#[test]
fn a_token_is_shown_once_and_the_configuration_has_only_its_hash() {
    let folder = migrated();
    let made = run(
        folder.path(),
        &[
            "token",
            "new",
            "--name",
            "ci",
            "--role",
            "read",
            "--role",
            "produce",
            "--project",
            "shop",
        ],
    );
    assert_eq!(code(&made), 0);
    let (token, lines) = (stdout(&made), stderr(&made));
    assert!(
        token.starts_with("pillarbox_") && token.trim().len() > 50,
        "{token}"
    );
    assert!(!lines.contains(token.trim()), "{lines}");
    let yaml = lines.split_once("outbox:").unwrap().1;
    let config = format!("outbox:{yaml}    listen: \"127.0.0.1:0\"\n");
    std::fs::write(folder.path().join("pillarbox.yaml"), config).unwrap();
    let served = Served::start(folder.path(), &["run"]);
    let bearer = bearer(token.trim());
    assert_eq!(get(&served, "/v1/openapi.json", &[&bearer]).status, 200);
    assert_eq!(get(&served, "/v1/openapi.json", &[]).status, 401);
    let scoped = get(&served, "/v1/status", &[&bearer]);
    assert_eq!(scoped.status, 403, "{scoped:?}");
    assert!(scoped.error().contains("all projects"), "{scoped:?}");
}

#[test]
fn a_token_never_has_the_name_of_another_kind_of_caller() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["jwt:zoe", ""] {
        let output = run(folder.path(), &["token", "new", "--name", name, "--role", "read"]);
        assert_eq!(
            (code(&output), stdout(&output).as_str()),
            (2, ""),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn an_address_that_others_can_reach_needs_tokens_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let check = |http: Value| {
        configure(folder.path(), &http);
        let output = run(folder.path(), &["--json", "config", "check"]);
        json(&output)
    };
    let open = check(json!({ "listen": "0.0.0.0:7420" }));
    let problems = open["problems"].to_string();
    assert!(
        problems.contains("callers need tokens") && problems.contains("`hosts`"),
        "{open}"
    );
    let (token, entry) = new_token(folder.path(), &["--name", "ci", "--role", "read"]);
    let good = check(json!({ "listen": "0.0.0.0:7420", "hosts": ["a.example"], "tokens": [entry] }));
    assert_eq!(good["valid"], true, "{good}");
    assert!(good["warnings"].to_string().contains("without TLS"), "{good}");
    let mut wrong = entry.clone();
    wrong["sha256"] = token.clone().into();
    let wrong = check(json!({ "tokens": [wrong, entry.clone(), entry] }));
    let text = wrong.to_string();
    assert!(
        text.contains("not a SHA-256") && text.contains("the same name"),
        "{text}"
    );
    assert!(
        !text.contains(&token),
        "a token in the wrong place is not shown: {text}"
    );
}

#[test]
fn every_action_of_an_operator_is_recorded_with_its_author() {
    let folder = migrated();
    let (operator, entry) = new_token(folder.path(), &["--name", "ops", "--role", "operate"]);
    configure(
        folder.path(),
        &json!({ "listen": "127.0.0.1:0", "tokens": [entry] }),
    );
    let lost = (1..=2)
        .map(|id| line(id).replace("t.x", "lost.x"))
        .collect::<String>();
    super::dead_http::enqueue(folder.path(), &lost);
    let served = Served::start(folder.path(), &["--log-format", "json", "run"]);
    let token = bearer(&operator);
    until_blocking("both are dead", || {
        let answer = get(&served, "/v1/dead", &[&token]);
        answer.json()["letters"].as_array().unwrap().len() == 2
    });
    let id = "018f0000-0000-7000-8000-000000000001";
    let replay = json!({ "filter": { "ids": [id] }, "by": "Zoë", "why": "tried" });
    assert_eq!(post(&served, "/v1/dead/replay", &operator, &replay).status, 200);
    let said: Value = serde_json::from_str(&served.relay.says("outbox_operator_action")).unwrap();
    assert_eq!(
        (&said["action"], &said["by"], &said["why"], &said["filter"]),
        (
            &"replay".into(),
            &"ops (by Zoë)".into(),
            &"tried".into(),
            &"ids=1".into()
        ),
        "{said}"
    );
    assert_eq!(
        (&said["done"], &said["dry_run"]),
        (&1.into(), &false.into()),
        "{said}"
    );
    let shown = get(&served, &format!("/v1/dead/{id}"), &[&token]).json();
    assert_eq!(shown["recoveries"][0]["by"], "ops (by Zoë)", "{shown}");

    let discard = json!({ "filter": { "topic": "lost.>" }, "why": "a test", "dry_run": true });
    assert_eq!(post(&served, "/v1/dead/discard", &operator, &discard).status, 200);
    let said: Value = serde_json::from_str(&served.relay.says("outbox_operator_action")).unwrap();
    assert_eq!(
        (&said["action"], &said["by"], &said["filter"], &said["dry_run"]),
        (
            &"discard".into(),
            &"ops".into(),
            &"topic=lost.>".into(),
            &true.into()
        ),
        "{said}"
    );

    // Refusals are logged once in a while, without the token.
    for _ in 0..20 {
        assert_eq!(
            get(&served, "/v1/dead?topic=geheim", &[&bearer("wrong-token")]).status,
            401
        );
    }
    assert_eq!(post(&served, "/v1/events", &operator, &json!({})).status, 403);
    let said = served.relay.says("outbox_request_refused");
    assert!(
        said.contains(r#""status":401"#) && said.contains(r#""who":"127.0.0.1""#),
        "{said}"
    );
    assert!(
        said.contains(r#""path":"/v1/dead""#) && !said.contains("geheim"),
        "{said}"
    );
    let said = served.relay.says("outbox_request_refused");
    assert!(
        said.contains(r#""status":403"#) && said.contains(r#""who":"ops""#),
        "{said}"
    );
    assert!(!said.contains("wrong-token"), "{said}");
}

#[test]
fn every_refusal_is_logged_with_the_caller_or_the_address() {
    let folder = migrated();
    let (scoped, first) = new_token(
        folder.path(),
        &[
            "--name",
            "shop",
            "--role",
            "read",
            "--role",
            "produce",
            "--project",
            "a",
        ],
    );
    let (eager, second) = new_token(folder.path(), &["--name", "eager", "--role", "read"]);
    let rate = json!({ "requests_per_second": 1, "burst": 5 });
    let http = json!({ "listen": "127.0.0.1:0", "tokens": [first, second], "rate_limit": rate });
    configure(folder.path(), &http);
    let served = Served::start(folder.path(), &["--log-format", "json", "run"]);
    let refused = |status: u16, who: &str, method: &str, path: &str| {
        let said: Value = serde_json::from_str(&served.relay.says("outbox_request_refused")).unwrap();
        let line = (&said["status"], &said["who"], &said["method"], &said["path"]);
        assert_eq!(
            line,
            (&status.into(), &who.into(), &method.into(), &path.into()),
            "{said}"
        );
        assert_eq!(said["address"], "127.0.0.1", "{said}");
    };

    // By a handler that applies the scope. A stream would have a heartbeat every 15 seconds.
    let shop = bearer(&scoped);
    let foreign = "GET /v1/stream?after=0&project_id=b";
    let answer = ask(
        &served.address,
        foreign,
        &[HOST, &shop],
        "",
        Duration::from_secs(10),
    );
    assert_eq!(answer.status, 403);
    refused(403, "shop", "GET", "/v1/stream");
    // Before the check of tokens.
    let address = &served.address;
    let status = |request, headers: &[&str]| ask(address, request, headers, "", DEADLINE).status;
    assert_eq!(status("GET /v1/status", &["Host: evil.example"]), 421);
    refused(421, "127.0.0.1", "GET", "/v1/status");
    assert_eq!(status("GET /v1/status", &[HOST, HOST]), 400);
    refused(400, "127.0.0.1", "GET", "/v1/status");
    assert_eq!(
        status("GEHEIM /v1/geheim", &[HOST, "Origin: https://evil.example"]),
        403
    );
    refused(403, "127.0.0.1", "other", "unknown");
    // A wrong parameter of a known caller is none.
    assert_eq!(get(&served, "/v1/events?limit=x", &[&shop]).status, 400);
    while get(&served, "/v1/openapi.json", &[&bearer(&eager)]).status != 429 {}
    refused(429, "eager", "GET", "/v1/openapi.json");
}

#[test]
fn too_many_requests_of_a_caller_are_refused_and_others_go_on() {
    let folder = migrated();
    let (eager, first) = new_token(folder.path(), &["--name", "eager", "--role", "read"]);
    let (calm, second) = new_token(folder.path(), &["--name", "calm", "--role", "read"]);
    let rate = json!({ "requests_per_second": 1, "burst": 5 });
    let http = json!({ "listen": "127.0.0.1:0", "tokens": [first, second], "rate_limit": rate });
    configure(folder.path(), &http);
    let served = Served::start(folder.path(), &["run"]);
    let ask = |token: &str| get(&served, "/v1/openapi.json", &[&bearer(token)]);
    let answers: Vec<Answered> = (0..20).map(|_| ask(&eager)).collect();
    let limited: Vec<&Answered> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(
        answers[..5].iter().all(|answer| answer.status == 200),
        "{answers:?}"
    );
    assert!(limited.len() >= 10, "{answers:?}");
    assert!(limited[0].head.contains("retry-after: 1"), "{limited:?}");
    assert!(limited[0].error().contains("rate_limit"), "{limited:?}");
    assert_eq!(ask(&calm).status, 200);
    // Guessing is limited by address, and a known token is not affected.
    let guessed = (0..100).filter(|_| ask("guessed").status == 429).count();
    assert!(guessed >= 10, "{guessed}");
    assert_eq!(ask(&calm).status, 200);
    assert_eq!(get(&served, "/livez", &[]).status, 200);
}

#[test]
fn health_sends_the_token_of_its_environment() {
    let folder = migrated();
    let (token, entry) = new_token(folder.path(), &["--name", "probe", "--role", "read"]);
    configure(
        folder.path(),
        &json!({ "listen": "127.0.0.1:0", "tokens": [entry] }),
    );
    let served = Served::start(folder.path(), &["run"]);
    let health = |token: Option<&str>| {
        let mut command = pillarbox(folder.path());
        command.args(["health", "--address", &served.address]);
        command.envs(token.map(|token| ("PILLARBOX_TOKEN", token)));
        command.output().unwrap()
    };
    until_blocking("it is healthy", || code(&health(Some(&token))) == 0);
    let refused = health(None);
    assert_eq!(code(&refused), 2);
    assert!(
        stderr(&refused).contains("Set PILLARBOX_TOKEN"),
        "{}",
        stderr(&refused)
    );
}
