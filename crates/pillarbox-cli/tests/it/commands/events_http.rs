//! Events written over HTTP: all of them or none, with duplicates found by their ids.

use std::net::TcpStream;

use pillarbox_testkit::proxy::{Fault, Proxy};

use super::{dead_http::Served, http_access::ask, *};

const HOST: &str = "Host: localhost";
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// Returns the status, the headers and the body.
fn post(served: &Served, kind: &str, body: &str) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    let head = format!("POST /v1/events HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    // The answer may arrive, and the connection end, before the whole body is read.
    let _ = stream.write_all(format!("{head}Content-Type: {kind}\r\n\r\n{body}").as_bytes());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}"));
    (status, head.to_ascii_lowercase(), value)
}

fn configure(folder: &Path, sink: &str, more: &str) {
    let text = format!(
        "outbox:\n  sinks:\n    out: {{ url: \"{sink}\" }}\n  http: {{ listen: \"127.0.0.1:0\" }}\n{more}"
    );
    std::fs::write(folder.join("pillarbox.yaml"), text).unwrap();
}

fn pending(folder: &Path) -> i64 {
    json(&run(folder, &["status", "--json"]))["pending"]
        .as_i64()
        .unwrap()
}

#[test]
fn events_posted_as_json_a_list_or_ndjson_are_delivered_once() {
    let folder = migrated();
    configure(folder.path(), "stdout:", "");
    let served = Served::start(folder.path(), &["run"]);
    let (status, _, answer) = post(&served, JSON, &line(1));
    assert_eq!(
        (status, &answer["new"], &answer["duplicate"]),
        (201, &1.into(), &0.into()),
        "{answer}"
    );
    assert_eq!(answer["events"][0]["result"], "new");
    let (status, _, answer) = post(&served, JSON, &line(1));
    assert_eq!(
        (status, &answer["events"][0]["result"]),
        (200, &"duplicate".into()),
        "{answer}"
    );
    let list = format!("[{},{}]", line(1), line(2));
    let (status, _, answer) = post(&served, "Application/JSON; charset=utf-8", &list);
    assert_eq!(
        (status, &answer["new"], &answer["duplicate"]),
        (201, &1.into(), &1.into()),
        "{answer}"
    );
    let (status, ..) = post(&served, NDJSON, &format!("\n{}\r\n{}", line(3), line(4)));
    assert_eq!(status, 201);
    until_blocking("all are delivered", || pending(folder.path()) == 0);
    let (code, out) = served.relay.stop();
    assert_eq!(code, 0);
    for n in 1..=4 {
        let id = format!("018f0000-0000-7000-8000-{n:012}");
        assert_eq!(out.matches(&id).count(), 1, "{out}");
    }
    assert!(
        out.contains(r#""payload":{"n":1}"#),
        "the payload must be unchanged: {out}"
    );
}

#[test]
fn a_request_with_a_bad_event_is_refused_completely() {
    let folder = migrated();
    configure(
        folder.path(),
        "null:",
        "  database: { payload_bytes_max: 1000 }\n",
    );
    let served = Served::start(folder.path(), &["run"]);
    let bad_topic = line(2).replace("t.x", "t x");
    let too_large = line(3).replace(r#"{"n":3}"#, &format!("\"{}\"", "x".repeat(1_001)));
    let many = line(4).repeat(10_001);
    let huge = " ".repeat(9 * 1024 * 1024);
    let cases = [
        (JSON, "{".to_owned(), 400, "not an event"),
        (JSON, "[{}]".to_owned(), 400, "not a list of events"),
        (JSON, "[]".to_owned(), 400, "no event in the body"),
        (NDJSON, format!("{}{{\n", line(1)), 400, "line 2: "),
        (
            NDJSON,
            format!("{}{bad_topic}", line(1)),
            422,
            "event 1: topic contains",
        ),
        (JSON, too_large, 413, "the payload has"),
        (NDJSON, many, 413, "10001 events"),
        (JSON, huge, 413, "more than"),
        ("text/plain", line(1), 415, "application/json"),
    ];
    for (kind, body, expected, words) in cases {
        let (status, _, answer) = post(&served, kind, &body);
        assert_eq!(status, expected, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(words), "{answer}");
    }
    let (status, _, answer) = post(&served, JSON, &line(1));
    assert_eq!(
        (status, &answer["new"]),
        (201, &1.into()),
        "a refused request must write nothing: {answer}"
    );
}

#[test]
fn too_much_that_waits_is_a_429_with_its_retry_after_and_an_exit_code() {
    let folder = migrated();
    let nowhere = format!("nats://127.0.0.1:{}", servers::free_port());
    let classes = "  backpressure:\n    classes:\n      - { name: bulk, topics: [\"t.>\"], hard: 3 }\n      \
                   - { name: money, topics: [\"money.>\"], never_refuse: true }\n";
    configure(folder.path(), &nowhere, classes);
    let served = Served::start(folder.path(), &["run"]);
    served.relay.says("Relaying from");
    let mut n = 0;
    let (head, answer) = until_ok_blocking(|| {
        n += 1;
        let (status, head, answer) = post(&served, JSON, &line(n));
        if status == 429 {
            return Ok((head, answer));
        }
        assert_eq!(status, 201, "{answer}");
        Err(format!("{n} events are written and none is refused"))
    });
    let retry: u64 = head
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&retry), "{head}");
    assert_eq!(
        (&answer["class"], &answer["limit"]),
        (&"bulk".into(), &3.into()),
        "{answer}"
    );
    assert!(answer["pending"].as_u64().unwrap() >= 3, "{answer}");
    assert!(
        answer["error"].as_str().unwrap().contains("class bulk"),
        "{answer}"
    );
    let (status, ..) = post(&served, JSON, &line(n + 1).replace("t.x", "money.out"));
    assert_eq!(status, 201);

    let status = json(&run(folder.path(), &["status", "--json"]));
    let classes = &status["pressure"];
    assert_eq!(
        (
            &classes[0]["class"],
            &classes[0]["producers"],
            &classes[0]["hard"]
        ),
        (&"bulk".into(), &"refused".into(), &3.into()),
        "{status}"
    );
    assert!(
        classes[0]["retry_after_seconds"].as_f64().unwrap() > 0.0,
        "{status}"
    );
    assert_eq!(classes[1]["producers"], "free", "{status}");
    let shown = stdout(&run(folder.path(), &["status"]));
    let bulk = shown.lines().find(|line| line.contains("bulk")).unwrap();
    assert!(bulk.contains("refused, may try again in"), "{shown}");
    let (_, status) = served.get("/v1/status");
    assert_eq!(status["store"]["pressure"][0]["producers"], "refused", "{status}");

    let output = run_with_input(folder.path(), &["enqueue", "--ndjson"], &line(n + 2));
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("takes no more events of class bulk"),
        "{}",
        stderr(&output)
    );
    let output = run_with_input(folder.path(), &["enqueue", "--ndjson", "--json"], &line(n + 2));
    assert_eq!(json(&output)["busy"]["class"], "bulk");

    // An empty list removes the class at the start of the next relay.
    drop(served);
    configure(folder.path(), &nowhere, "  backpressure: { classes: [] }\n");
    let served = Served::start(folder.path(), &["run"]);
    until_blocking("nothing is refused", || {
        post(&served, JSON, &line(n + 3)).0 != 429
    });
}

#[test]
fn a_version_that_is_taken_is_a_409_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "null:", "  database: { unique_versions: true }\n");
    let made = run(folder.path(), &["migrate"]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let served = Served::start(folder.path(), &["run"]);
    let versioned = |n: u32| {
        line(n)
            .replace(&format!(r#""aggregate_id":"{n}""#), r#""aggregate_id":"o-1""#)
            .replace(r#""payload""#, r#""aggregate_version":7,"payload""#)
    };
    let (status, _, answer) = post(&served, JSON, &versioned(1));
    assert_eq!(status, 201, "{answer}");
    let (status, _, answer) = post(&served, NDJSON, &format!("{}{}", line(3), versioned(2)));
    assert_eq!(status, 409, "{answer}");
    let why = answer["error"].as_str().unwrap();
    assert!(why.contains("version 7 of a o-1 is taken"), "{answer}");
    // The same event again is not another version. Nothing of the refused request was written.
    let (status, _, answer) = post(&served, NDJSON, &format!("{}{}", versioned(1), line(3)));
    assert_eq!(
        (status, &answer["new"], &answer["duplicate"]),
        (201, &1.into(), &1.into()),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_is_a_503_with_its_retry_after() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let database = postgres.database().await;
    let proxy = Proxy::in_front_of(&database).await;
    let folder = tempfile::tempdir().unwrap();
    let through = format!("  database: {{ url: \"{}\" }}\n", proxy.through(&database));
    configure(folder.path(), "null:", &through);
    let made = run(folder.path(), &["migrate"]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    proxy.set(Fault::Refuse).await;
    let served = Served::start(folder.path(), &["run"]);
    let get = |path: &str| ask(&served.address, &format!("GET {path}"), &[HOST], "", DEADLINE);
    // Once before the relay has seen its database, and once after.
    for n in 1..=2 {
        let (status, head, answer) = post(&served, JSON, &line(n));
        assert_eq!(status, 503, "{answer}");
        assert!(head.contains("\r\nretry-after: 5\r\n"), "{head}");
        proxy.set(Fault::Pass).await;
        until_ok_blocking(|| {
            let (status, _, answer) = post(&served, JSON, &line(n));
            if status == 201 {
                return Ok(());
            }
            assert_eq!(status, 503, "{answer}");
            Err(answer)
        });
        until_blocking("the relay works", || get("/readyz").status == 200);
        proxy.set(Fault::Refuse).await;
    }
    let readyz = until_ok_blocking(|| {
        let answer = get("/readyz");
        (answer.status == 503).then_some(answer).ok_or("it is ready")
    });
    // Everybody may ask. The database's own words are for those who may read.
    assert_eq!(readyz.error(), "the database is away: /healthz says why");
    let healthz = get("/healthz").json();
    assert!(healthz["database"].as_str().unwrap().len() > 10, "{healthz}");
}
