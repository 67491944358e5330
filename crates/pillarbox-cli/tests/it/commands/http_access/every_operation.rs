//! Every operation of the OpenAPI document, with every kind of token.

use std::collections::BTreeMap;

use super::*;

/// In the address of the sink. No answer may contain it.
const SECRET: &str = "geheimnis-4711";
const ROLES: [&str; 3] = ["produce", "read", "operate"];
/// A stream does not end. What it has to say about earlier events comes at once.
const STREAM_PATIENCE: Duration = Duration::from_millis(400);

/// One operation as the document describes it.
struct Operation {
    method: String,
    path: String,
    /// `None`: it is public. An empty text: any token.
    role: Option<String>,
    scoped: bool,
    streams: bool,
    /// The names of its parameters in the query.
    query: Vec<String>,
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let security = operation["security"]
                .as_array()
                .expect("each operation says who may use it");
            assert_eq!(security.len(), 1, "{path}");
            let role = security[0]
                .get("token")
                .map(|roles| roles[0].as_str().unwrap_or_default().to_owned());
            let content = operation["responses"]["200"]["content"].as_object();
            let streams = content.is_some_and(|content| {
                content
                    .keys()
                    .any(|kind| kind.contains("ndjson") || kind.contains("event-stream"))
            });
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|parameter| parameter["in"] == "query");
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                role,
                scoped: operation["x-scoped"] == true,
                streams,
                query: query
                    .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                    .collect(),
            });
        }
    }
    found
}

fn id(n: u32) -> String {
    format!("018f0000-0000-7000-8000-{n:012}")
}

/// Event `n`, of a project and a user, with both in its payload.
fn event(n: u32, topic: &str, project: &str, user: &str) -> Value {
    json!({
        "id": id(n), "topic": topic, "event_type": "X", "aggregate_type": "a", "aggregate_id": format!("{project}-{n}"),
        "project_id": project, "user_id": user, "payload": { "note": format!("of {project} and {user}") },
    })
}

/// A request that the operation could answer.
fn request(operation: &Operation, query: &str) -> (String, String) {
    // The event of the other project.
    let steps = operation.path.split('/').map(|step| match step.starts_with('{') {
        true => id(2),
        false => step.to_owned(),
    });
    let path = steps.collect::<Vec<_>>().join("/");
    // A stream has something to show only if it begins in the past.
    if operation.streams {
        assert!(operation.query.iter().any(|name| name == "after"), "{path}");
    }
    let query = match query {
        "" if operation.streams => "?after=0",
        query => query,
    };
    let body = match operation.path.as_str() {
        "/v1/events" if operation.method == "POST" => {
            let mut event = event(9, "kept.x", "", "");
            event
                .as_object_mut()
                .unwrap()
                .retain(|name, _| !matches!(name.as_str(), "project_id" | "user_id"));
            event.to_string()
        }
        "/v1/dead/discard" | "/v1/dead/replay" => {
            json!({ "filter": { "topic": "no.such" }, "why": "a test", "dry_run": true }).to_string()
        }
        _ => String::new(),
    };
    (format!("{} {path}{query}", operation.method), body)
}

struct Tokens {
    served: Served,
    known: BTreeMap<&'static str, String>,
}

impl Tokens {
    fn ask(&self, operation: &Operation, query: &str, token: Option<&str>) -> Answered {
        let (request, body) = request(operation, query);
        let bearer = token.map(|name| bearer(&self.known[name]));
        let mut headers = vec![HOST, JSON];
        headers.extend(bearer.as_deref());
        let patience = if operation.streams {
            STREAM_PATIENCE
        } else {
            DEADLINE
        };
        let answer = ask(&self.served.address, &request, &headers, &body, patience);
        let all = format!("{}{}", answer.head, answer.body);
        assert!(!all.contains(SECRET), "{request}: {all}");
        for token in self.known.values() {
            assert!(
                !all.contains(&token.to_ascii_lowercase()) && !all.contains(token),
                "{request}: {all}"
            );
        }
        answer
    }
}

/// A relay with a token of each kind, a delivered and a dead event of each project, and a sink whose address has a
/// secret.
fn started(folder: &Path) -> Tokens {
    let kinds: [(&str, &[&str]); 8] = [
        ("produce", &["--role", "produce"]),
        ("read", &["--role", "read"]),
        ("operate", &["--role", "operate"]),
        ("all", &["--role", "produce", "--role", "operate"]),
        (
            "project-a",
            &["--role", "produce", "--role", "read", "--project", "project-a"],
        ),
        (
            "user-a",
            &["--role", "produce", "--role", "read", "--user", "user-a"],
        ),
        (
            "reader-a",
            &["--role", "read", "--project", "project-a", "--user", "user-a"],
        ),
        ("producer-a", &["--role", "produce", "--project", "project-a"]),
    ];
    let mut known = BTreeMap::new();
    let mut entries = Vec::new();
    for (name, args) in kinds {
        let (token, entry) = new_token(folder, &[&["--name", name], args].concat());
        known.insert(name, token);
        entries.push(entry);
    }
    let away = format!("nats://app:{SECRET}@127.0.0.1:{}", servers::free_port());
    let config = json!({ "outbox": {
        "sinks": { "out": { "url": "http-stream:" }, "away": { "url": away } },
        "routes": [{ "topic": "kept.>", "sink": "out" }, { "topic": "away.>", "sink": "away" }],
        "http": { "listen": "127.0.0.1:0", "tokens": entries },
    } });
    std::fs::write(folder.join("pillarbox.yaml"), config.to_string()).unwrap();
    let events = [
        event(1, "kept.x", "project-a", "user-a"),
        event(2, "kept.x", "project-b", "user-b"),
        event(3, "lost.x", "project-a", "user-a"),
        event(4, "lost.x", "project-b", "user-b"),
        event(5, "away.x", "project-b", "user-b"),
    ];
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    super::super::dead_http::enqueue(folder, &lines);
    let served = Served::start(folder, &["run"]);
    let tokens = Tokens { served, known };
    let reader = bearer(&tokens.known["read"]);
    until_blocking("two events are delivered and two are dead", || {
        let status = get(&tokens.served, "/v1/status", &[&reader]).json();
        status["relay"]["published"] == 2 && status["store"]["dead"] == 2
    });
    tokens
}

#[test]
fn each_operation_answers_only_callers_with_its_role_and_within_their_scope() {
    let folder = migrated();
    let tokens = started(folder.path());
    let document = get(
        &tokens.served,
        "/v1/openapi.json",
        &[&bearer(&tokens.known["read"])],
    )
    .json();
    assert!(
        document["openapi"].as_str().unwrap().starts_with("3.1"),
        "{document}"
    );
    let operations = operations(&document);
    assert!(operations.len() >= 15, "{document}");
    assert_eq!(operations.iter().filter(|operation| operation.streams).count(), 1);
    for operation in &operations {
        let name = format!("{} {}", operation.method, operation.path);
        let status = |token| tokens.ask(operation, "", token).status;
        let answer = tokens.ask(operation, "", Some("all"));
        assert!(!answer.body.contains("there is no such path"), "{name}");
        let Some(role) = &operation.role else {
            assert!(!matches!(status(None), 401 | 403), "{name} is public");
            continue;
        };
        assert_eq!(status(None), 401, "{name} without a token");
        for of_token in ROLES {
            let may = role.is_empty() || role == of_token || (role == "read" && of_token == "operate");
            let status = status(Some(of_token));
            assert_eq!(status == 403, !may, "{name} with the role {of_token}: {status}");
            assert!(status != 401 && status < 500 || status == 503, "{name}: {status}");
        }
        for (token, roles) in [
            ("project-a", &["produce", "read"][..]),
            ("user-a", &["produce", "read"]),
            ("reader-a", &["read"]),
            ("producer-a", &["produce"]),
        ] {
            let answer = tokens.ask(operation, "", Some(token));
            let may = operation.scoped && (role.is_empty() || roles.contains(&role.as_str()));
            assert_eq!(
                answer.status == 403,
                !may,
                "{name} with the token {token}: {answer:?}"
            );
            sees_nothing_of_others(operation, &answer, &name);
            asks_for_nothing_of_others(&tokens, operation, token, may, &name);
        }
    }
}

/// Nothing of the other project or user is in the answer. (An id that was asked for may be in an error.)
fn sees_nothing_of_others(operation: &Operation, answer: &Answered, name: &str) {
    for foreign in ["project-b", "user-b"] {
        assert!(!answer.body.contains(foreign), "{name}: {answer:?}");
    }
    if !operation.path.contains('{') {
        for n in [2, 4, 5] {
            assert!(!answer.body.contains(&id(n)), "{name}: {answer:?}");
        }
    } else if operation.method == "GET" {
        assert_ne!(answer.status, 200, "{name}: {answer:?}");
    }
}

/// A parameter for the project or the user does not lead out of the scope.
fn asks_for_nothing_of_others(tokens: &Tokens, operation: &Operation, token: &str, may: bool, name: &str) {
    for parameter in &operation.query {
        let foreign = match parameter.as_str() {
            name if name.contains("project") && token.starts_with("project") => "project-b",
            name if name.contains("user") && token.starts_with("user") => "user-b",
            _ => continue,
        };
        let answer = tokens.ask(operation, &format!("?{parameter}={foreign}"), Some(token));
        if may {
            assert_eq!(
                answer.status, 403,
                "{name} with {parameter}={foreign}: {answer:?}"
            );
        }
    }
}

/// What the other test looks for is there to be found, and a scope hides no event of its own.
#[test]
fn a_scoped_reader_sees_its_own_events_and_an_unscoped_one_those_of_all() {
    let folder = migrated();
    let tokens = started(folder.path());
    let get = |path: &str, token: &str| {
        let headers = [HOST, &bearer(&tokens.known[token])];
        let request = format!("GET {path}");
        ask(&tokens.served.address, &request, &headers, "", STREAM_PATIENCE)
    };
    for (token, sees, does_not_see) in [
        ("project-a", &[1][..], &[2][..]),
        ("user-a", &[1], &[2]),
        ("reader-a", &[1], &[2]),
        ("read", &[1, 2], &[]),
    ] {
        for path in ["/v1/events", "/v1/stream?after=0"] {
            let answer = until_ok_blocking(|| {
                let answer = get(path, token);
                let all = sees.iter().all(|n| answer.body.contains(&id(*n)));
                all.then_some(answer).ok_or(format!("{path} with {token}"))
            });
            for n in does_not_see {
                assert!(!answer.body.contains(&id(*n)), "{path} with {token}: {answer:?}");
            }
        }
        let life = |n: u32| get(&format!("/v1/events/{}", id(n)), token).status;
        assert!(sees.iter().all(|n| life(*n) == 200), "{token}");
        assert!(does_not_see.iter().all(|n| life(*n) == 404), "{token}");
    }
}

#[test]
fn a_scoped_reader_sees_the_life_of_its_dead_event_without_operators_and_relays() {
    let folder = migrated();
    let tokens = started(folder.path());
    let order = json!({ "filter": { "topic": "lost.>" }, "by": "Zoë", "why": "private" });
    let discarded = post(
        &tokens.served,
        "/v1/dead/discard",
        &tokens.known["operate"],
        &order,
    );
    assert_eq!(discarded.json()["done"], 2, "{discarded:?}");
    let life = |n: u32, token: &str| {
        get(
            &tokens.served,
            &format!("/v1/events/{}", id(n)),
            &[&bearer(&tokens.known[token])],
        )
    };
    let steps = |life: &Value| life["steps"].as_array().unwrap().clone();
    let whole = life(3, "read").json();
    for part in ["relay", "error", "by", "why"] {
        assert!(
            steps(&whole).iter().any(|step| step[part].is_string()),
            "{part}: {whole}"
        );
    }
    for token in ["project-a", "user-a", "reader-a"] {
        let own = life(3, token).json();
        assert_eq!(
            (&own["status"], &own["event"]["project_id"]),
            (&whole["status"], &"project-a".into())
        );
        let what = |life: &Value| {
            steps(life)
                .iter()
                .map(|step| step["what"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(what(&own), ["committed", "dead", "discarded"], "{own}");
        assert_eq!(what(&whole), what(&own));
        for part in ["relay", "error", "by", "why"] {
            assert!(
                steps(&own).iter().all(|step| step[part].is_null()),
                "{part}: {own}"
            );
        }
        assert_eq!(life(4, token).status, 404);
    }
}

#[test]
fn a_scoped_producer_writes_only_events_of_its_scope() {
    let folder = migrated();
    let (token, entry) = new_token(
        folder.path(),
        &["--name", "shop", "--role", "produce", "--project", "project-a"],
    );
    configure(
        folder.path(),
        &json!({ "listen": "127.0.0.1:0", "tokens": [entry] }),
    );
    let served = Served::start(folder.path(), &["run"]);
    let mine = event(1, "kept.x", "project-a", "user-b");
    let foreign = event(2, "kept.x", "project-b", "user-b");
    let refused = post(&served, "/v1/events", &token, &json!([mine, foreign]));
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.error().contains("event 1: "), "{refused:?}");
    let mut unnamed = event(3, "kept.x", "", "");
    unnamed.as_object_mut().unwrap().remove("project_id");
    unnamed.as_object_mut().unwrap().remove("user_id");
    let written = post(&served, "/v1/events", &token, &json!([mine, unnamed]));
    assert_eq!(written.status, 201, "{written:?}");
    until_blocking("both are published", || {
        stdout(&run(folder.path(), &["tail", "--json", "--follow=false"]))
            .matches("published")
            .count()
            == 2
    });
    let listed = stdout(&run(folder.path(), &["tail", "--json", "--follow=false"]));
    assert_eq!(
        listed.matches(r#""project_id":"project-a""#).count(),
        2,
        "{listed}"
    );
    assert!(
        !listed.contains(&id(2)),
        "nothing of the refused request was written: {listed}"
    );
}
