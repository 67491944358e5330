//! Dead letters over HTTP: listing, showing, replaying and discarding.

use std::net::TcpStream;

use serde_json::json;

use super::*;

/// Writes a configuration with a route for `kept.>` and the routes in `more`.
pub(super) fn configure(folder: &Path, more: &str) {
    let routes = format!("[{{ topic: \"kept.>\", sink: out }}{more}]");
    let text = format!(
        "outbox:\n  sinks:\n    out: {{ url: \"stdout:\" }}\n  routes: {routes}\n  http: {{ listen: \"127.0.0.1:0\" }}\n"
    );
    std::fs::write(folder.join("pillarbox.yaml"), text).unwrap();
}

/// Event `id` of this key, on a topic that no route matches at first.
pub(super) fn lost(id: u32, key: &str) -> String {
    line(id).replace("t.x", "lost.x").replace(
        &format!(r#""aggregate_id":"{id}""#),
        &format!(r#""aggregate_id":"{key}""#),
    )
}

fn id(n: u32) -> String {
    format!("018f0000-0000-7000-8000-{n:012}")
}

pub(super) struct Served {
    pub(super) relay: Running,
    pub(super) address: String,
}

impl Served {
    pub(super) fn start(folder: &Path, args: &[&str]) -> Self {
        let relay = Running::start(folder, args);
        let said = relay.says("Serving http://");
        let address = said.trim_start_matches("Serving http://").trim_end_matches('/');
        Self {
            address: address.to_owned(),
            relay,
        }
    }

    fn request(&self, head: &str, kind: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let length = body.len();
        let request =
            format!("{head} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n{kind}\r\n{body}");
        // The answer may arrive, and the connection end, before the whole body is read.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}"));
        (status, value)
    }

    pub(super) fn get(&self, path: &str) -> (u16, Value) {
        self.request(&format!("GET {path}"), "", "")
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let kind = "Content-Type: application/json; charset=utf-8\r\n";
        self.request(&format!("POST {path}"), kind, &body.to_string())
    }

    fn done(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body);
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    fn open(&self) -> Vec<Value> {
        let (status, answer) = self.get("/v1/dead?limit=1000");
        assert_eq!(status, 200, "{answer}");
        answer["letters"].as_array().unwrap().clone()
    }

    pub(super) fn until_open(&self, count: usize) -> Vec<Value> {
        until_ok_blocking(|| {
            let open = self.open();
            if open.len() == count {
                return Ok(open);
            }
            Err(format!("expected {count} dead letters: {open:?}"))
        })
    }

    fn show(&self, n: u32) -> Value {
        let (status, shown) = self.get(&format!("/v1/dead/{}", id(n)));
        assert_eq!(status, 200, "{shown}");
        shown
    }
}

pub(super) fn enqueue(folder: &Path, lines: &str) {
    let output = run_with_input(folder, &["enqueue", "--ndjson"], lines);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn an_event_without_a_route_is_delivered_once_there_is_one() {
    let folder = migrated();
    configure(folder.path(), "");
    enqueue(folder.path(), &(lost(1, "a") + &lost(2, "a") + &lost(3, "b")));
    let served = Served::start(folder.path(), &["run"]);
    let letters = served.until_open(3);
    assert_eq!(
        letters.iter().map(|l| l["id"].clone()).collect::<Vec<_>>(),
        [id(3), id(2), id(1)],
        "the latest first"
    );

    let (_, page) = served.get("/v1/dead?topic=lost.%3E&key=&limit=2");
    assert_eq!(
        (page["letters"].as_array().unwrap().len(), &page["next"]),
        (2, &letters[1]["seq"])
    );
    let (_, rest) = served.get(&format!("/v1/dead?limit=2&before={}", page["next"]));
    assert_eq!(
        (&rest["letters"][0]["id"], &rest["next"]),
        (&id(1).into(), &Value::Null)
    );
    assert_eq!(
        served.get("/v1/dead?key=b").1["letters"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(served.get("/v1/dead?topic=kept.x").1["letters"], json!([]));

    let (_, groups) = served.get("/v1/dead/groups?reason=permanent_failure");
    let group = &groups["groups"][0];
    assert_eq!(
        (&group["count"], &group["keys"]),
        (&3.into(), &2.into()),
        "{groups}"
    );
    assert_eq!(group["fingerprint"], letters[0]["fingerprint"]);

    let shown = served.show(1);
    assert_eq!((&shown["state"], &shown["key"]), (&"open".into(), &"a".into()));
    assert_eq!(
        (&shown["event"]["payload"]["n"], &shown["event"]["topic"]),
        (&1.into(), &"lost.x".into())
    );
    assert!(shown["error"].as_str().unwrap().contains("route"), "{shown}");
    let (status, none) = served.get(&format!("/v1/dead/{}", id(9)));
    assert!(
        status == 404 && none["error"].as_str().unwrap().contains(&id(9)),
        "{none}"
    );

    let dry = served.done(
        "/v1/dead/replay",
        &json!({"filter": {"key": "a"}, "dry_run": true}),
    );
    assert_eq!(
        dry,
        json!({"dry_run": true, "touched": {"count": 2, "keys": 1, "topics": [["lost.x", 2]]}, "done": 0})
    );
    assert_eq!(served.open().len(), 3, "a dry run must change nothing");

    let order = json!({"filter": {"ids": [id(3)]}, "by": "Zoë", "why": "a test order"});
    assert_eq!(served.done("/v1/dead/discard", &order)["done"], 1);
    assert_eq!(served.show(3)["recoveries"][0]["by"], "Zoë");
    assert_eq!(
        served.get("/v1/dead?state=discarded").1["letters"][0]["id"],
        id(3)
    );
    assert_eq!(
        served.get("/v1/dead?state=all").1["letters"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let status = served.get("/v1/status").1;
    assert_eq!(
        status["store"]["dead"], 2,
        "only open letters may be counted: {status}"
    );
    assert_eq!(served.relay.stop().0, 0);

    configure(folder.path(), ", { topic: \"lost.>\", sink: out }");
    let served = Served::start(folder.path(), &["run"]);
    served.relay.says("Relaying from");
    let replayed = served.done(
        "/v1/dead/replay",
        &json!({"all": true, "why": "there is a route now"}),
    );
    assert_eq!(replayed["done"], 2);
    until_none(folder.path(), "failed");
    let shown = served.show(1);
    assert_eq!(
        (&shown["state"], &shown["recoveries"][0]["by"]),
        (&"replayed".into(), &"http".into())
    );
    let (exit, out) = served.relay.stop();
    let delivered: Vec<Value> = out
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let ids: Vec<&Value> = delivered
        .iter()
        .map(|event| &event["id"])
        .filter(|id| id.is_string())
        .collect();
    assert_eq!((exit, ids), (0, vec![&id(1).into(), &id(2).into()]), "{out}");
}

#[test]
fn thousands_are_replayed_and_discarded_in_pieces() {
    let folder = migrated();
    configure(folder.path(), "");
    let lines: String = (0..2_100).map(|n| lost(n, &format!("k-{}", n % 50))).collect();
    enqueue(folder.path(), &lines);
    let served = Served::start(folder.path(), &["run"]);
    let topic = json!({"topic": "lost.>"});
    let dead = || {
        served.done("/v1/dead/replay", &json!({"filter": topic, "dry_run": true}))["touched"]["count"].clone()
    };
    until_blocking("all died", || dead() == 2_100);
    let replayed = served.done("/v1/dead/replay", &json!({"filter": topic}));
    assert_eq!(
        (&replayed["touched"]["count"], &replayed["done"]),
        (&2_100.into(), &2_100.into())
    );
    until_blocking("all died again", || dead() == 2_100);
    for n in [0, 2_099] {
        assert_eq!(
            served.show(n)["recoveries"].as_array().unwrap().len(),
            1,
            "each letter must be replayed once"
        );
    }
    let copied = served.done(
        "/v1/dead/replay",
        &json!({"filter": {"ids": [id(7)]}, "as": "new"}),
    );
    assert_eq!(copied["done"], 1);
    let copy = served.show(7)["recoveries"][1]["new_id"]
        .as_str()
        .unwrap()
        .to_owned();
    until_blocking("the copy died", || {
        served.get(&format!("/v1/dead/{copy}")).0 == 200
    });
    let shown = served.get(&format!("/v1/dead/{copy}")).1;
    assert_eq!(shown["event"]["headers"]["replay-of"], id(7));
    let discarded = served.done("/v1/dead/discard", &json!({"all": true, "why": "made up"}));
    assert_eq!(discarded["done"], 2_100);
    assert!(served.open().is_empty());
}

#[test]
fn a_replay_is_finished_and_logged_although_its_client_has_gone() {
    let folder = migrated();
    configure(folder.path(), "");
    let lines: String = (0..3_000).map(|n| lost(n, &format!("k-{n}"))).collect();
    enqueue(folder.path(), &lines);
    let served = Served::start(folder.path(), &["--log-format", "json", "run"]);
    let order = json!({ "filter": { "topic": "lost.>" }, "by": "Zoë", "dry_run": true });
    let dead = || served.done("/v1/dead/replay", &order)["touched"]["count"].clone();
    until_blocking("all died", || dead() == 3_000);

    let body = json!({ "filter": { "topic": "lost.>" }, "by": "Zoë", "why": "and away" }).to_string();
    let head = format!(
        "POST /v1/dead/replay HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut gone = TcpStream::connect(&served.address).unwrap();
    gone.write_all((head + &body).as_bytes()).unwrap();
    drop(gone);
    let said = loop {
        let said: Value = serde_json::from_str(&served.relay.says("outbox_operator_action")).unwrap();
        if said["why"] == "and away" {
            break said;
        }
    };
    assert_eq!(
        (&said["touched"], &said["done"]),
        (&3_000.into(), &3_000.into()),
        "{said}"
    );
}

#[test]
fn a_wrong_request_is_refused_with_advice() {
    let folder = migrated();
    configure(folder.path(), "");
    enqueue(folder.path(), &lost(1, "a"));
    let served = Served::start(folder.path(), &["run"]);
    served.until_open(1);
    for (path, said) in [
        ("/v1/dead?reason=odd", "max_retries_exceeded"),
        ("/v1/dead?state=odd", "replayed"),
        ("/v1/dead?limit=0", "1 to 1000"),
        ("/v1/dead?limit=1001", "1 to 1000"),
        ("/v1/dead?limit=x", "1 to 1000"),
        ("/v1/dead?before=x", "`next`"),
        ("/v1/dead?since=yesterday", "2026-"),
        ("/v1/dead?colour=1", "colour"),
        ("/v1/dead?key=%00", "NUL"),
        ("/v1/dead/groups?state=all", "open"),
        ("/v1/dead/a%0Ab", "no control characters"),
    ] {
        let (status, answer) = served.get(path);
        let error = answer["error"].as_str().unwrap();
        assert!(status == 400 && error.contains(said), "{path}: {status} {error}");
    }
    let (replay, discard) = ("/v1/dead/replay", "/v1/dead/discard");
    for (path, body, said) in [
        (replay, json!({}), "\"all\": true"),
        (replay, json!({"filter": {"topic": ">"}}), "\"all\": true"),
        (replay, json!({"filter": {"ids": []}}), "\"all\": true"),
        (replay, json!({"all": true, "as": "old"}), "same"),
        (replay, json!({"all": true, "colour": 1}), "colour"),
        (replay, json!({"filter": {"colour": 1}}), "colour"),
        (replay, json!({"filter": {"key": "a\0"}}), "NUL"),
        (replay, json!({"all": true, "by": "x".repeat(201)}), "200"),
        (discard, json!({"filter": {"key": "a"}}), "`why`"),
        (discard, json!({"filter": {"key": "a"}, "why": " "}), "`why`"),
        (discard, json!({"why": "all of it"}), "\"all\": true"),
    ] {
        let (status, answer) = served.post(path, &body);
        let error = answer["error"].as_str().unwrap();
        assert!(status == 400 && error.contains(said), "{body}: {status} {error}");
    }
    let order = json!({"all": true, "why": "x"}).to_string();
    for kind in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
    ] {
        let (status, answer) = served.request("POST /v1/dead/discard", kind, &order);
        assert!(
            status == 415 && answer["error"].as_str().unwrap().contains("application/json"),
            "{answer}"
        );
    }
    let (status, answer) = served.post(discard, &json!({"all": true, "why": "x".repeat(512 * 1024)}));
    assert!(
        status == 413 && answer["error"].as_str().unwrap().contains("524288"),
        "{answer}"
    );
    assert_eq!(
        served.open().len(),
        1,
        "none of these requests may change anything"
    );
}

#[test]
fn dead_letters_of_a_database_that_is_away_are_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let away = "postgres://app:geheim@127.0.0.1:1/shop";
    let args = ["--database", away, "run", "--listen", "127.0.0.1:0"];
    let served = Served::start(folder.path(), &args);
    for (status, answer) in [
        served.get("/v1/dead"),
        served.post("/v1/dead/replay", &json!({"all": true, "by": "Zoë"})),
    ] {
        assert_eq!(status, 503, "{answer}");
        assert!(!answer["error"].as_str().unwrap().contains("geheim"), "{answer}");
    }
    let said = served.relay.says("outbox_operator_action");
    assert!(
        said.contains("Zoë") && said.contains("no connection") && !said.contains("geheim"),
        "{said}"
    );
}

#[test]
fn replays_can_be_forbidden_and_old_letters_are_dropped() {
    let folder = migrated();
    configure(folder.path(), "");
    let file = folder.path().join("pillarbox.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "  dlq: { enable_manual_replay: false }\n").unwrap();
    enqueue(folder.path(), &lost(1, "a"));
    let served = Served::start(folder.path(), &["run"]);
    served.until_open(1);
    let (status, answer) = served.post("/v1/dead/replay", &json!({ "all": true, "by": "Zoë" }));
    assert_eq!(status, 403, "{answer}");
    let logged = served.relay.says("outbox_operator_action");
    assert!(logged.contains("Zoë"), "{logged}");
    let output = run(folder.path(), &["dead", "replay", "--all"]);
    assert_eq!(code(&output), 2);
    for said in [answer.to_string(), logged, stderr(&output)] {
        assert!(said.contains("outbox.dlq.enable_manual_replay"), "{said}");
    }
    served.until_open(1);
    assert_eq!(served.relay.stop().0, 0);

    // Pretend that it died in 1970.
    let database = format!("sqlite:{}", folder.path().join("pillarbox.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let pool = sqlx::SqlitePool::connect(&database).await.unwrap();
        let sql = "update outbox_events_dead set died_at = 0";
        sqlx::query(sql).execute(&pool).await.unwrap();
        pool.close().await;
    });
    let served = Served::start(folder.path(), &["run"]);
    served.until_open(0);
    assert_eq!(served.relay.stop().0, 0);
}
