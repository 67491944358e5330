//! `/v1/stream` and the history of events, served from the event log by the real binary.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use super::{
    dead_http::{Served, enqueue},
    http_access::ask,
    *,
};

const HOST: &str = "Host: localhost";

/// A client of the stream that reads line by line.
pub(super) struct Client {
    lines: BufReader<TcpStream>,
    head: String,
}

impl Client {
    pub(super) fn follow(address: &str, query: &str, header: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // HTTP/1.0 has no chunks: the body is the lines.
        write!(stream, "GET /v1/stream{query} HTTP/1.0\r\n{HOST}\r\n{header}\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "no answer: {head}");
        }
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        Self { lines, head }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    pub(super) fn event(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// The positions and numbers of the next events.
    pub(super) fn events(&mut self, count: usize) -> Vec<(i64, i64)> {
        let event = |_| {
            let event = self.event();
            (
                event["position"].as_i64().unwrap(),
                event["payload"]["n"].as_i64().unwrap(),
            )
        };
        (0..count).map(event).collect()
    }
}

fn served(folder: &TempDir) -> Served {
    Served::start(folder.path(), &["run", "--listen", "127.0.0.1:0"])
}

fn of_project(id: u32, project: &str, user: &str) -> String {
    let mut event: Value = serde_json::from_str(&line(id)).unwrap();
    event["project_id"] = json!(project);
    event["user_id"] = json!(user);
    format!("{event}\n")
}

pub(super) fn lines(ids: std::ops::RangeInclusive<u32>) -> String {
    ids.map(line).collect()
}

#[test]
fn a_client_resumes_where_it_was_across_a_restart_of_the_relay() {
    let folder = migrated();
    let first = served(&folder);
    let folder_path = folder.path();
    enqueue(folder_path, &lines(1..=3));
    let mut client = Client::follow(&first.address, "?after=0", "");
    assert!(client.head.contains("application/x-ndjson"), "{}", client.head);
    assert_eq!(client.events(3), [(1, 1), (2, 2), (3, 3)]);
    let mut new = Client::follow(&first.address, "", "");
    enqueue(folder_path, &lines(4..=5));
    assert_eq!(client.events(2), [(4, 4), (5, 5)]);
    assert_eq!(new.event(), json!({ "heartbeat": true, "position": 3 }));
    assert_eq!(new.events(1), [(4, 4)], "without a position: from now on");

    assert_eq!(first.relay.stop().0, 0);
    let second = served(&folder);
    let mut said = String::new();
    client.lines.read_to_string(&mut said).unwrap();
    let last: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&last["end"], &last["position"]), (&json!("closed"), &json!(5)));
    enqueue(folder_path, &lines(6..=7));
    let mut client = Client::follow(&second.address, "?after=4", "");
    assert_eq!(client.events(3), [(5, 5), (6, 6), (7, 7)]);

    let mut all = Client::follow(&second.address, "?last=2", "");
    assert_eq!(all.event(), json!({ "heartbeat": true, "position": 5 }));
    assert_eq!(all.events(2), [(6, 6), (7, 7)]);
    let mut next = Client::follow(&second.address, "", "");
    assert_eq!(next.event(), json!({ "heartbeat": true, "position": 7 }));
    let beyond = ask(&second.address, "GET /v1/stream?after=900", &[HOST], "", DEADLINE);
    assert_eq!((beyond.status, &beyond.json()["last"]), (409, &json!(7)));
    assert_eq!(second.relay.stop().0, 0);
}

#[test]
fn a_browser_gets_server_sent_events_and_continues_after_the_last_one() {
    let folder = migrated();
    let served = served(&folder);
    enqueue(folder.path(), &lines(1..=3));
    Client::follow(&served.address, "?after=0", "").events(3);
    let sse = "Accept: text/event-stream\r\nLast-Event-ID: 1\r\n";
    let mut client = Client::follow(&served.address, "?after=0", sse);
    assert!(client.head.contains("text/event-stream"), "{}", client.head);
    for n in [2, 3] {
        assert_eq!(client.line(), format!("id: {n}\n"));
        let data = client.line();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event["payload"]["n"], n);
        assert_eq!(client.line(), "\n");
    }
    let mut next = Client::follow(&served.address, "", "Accept: text/event-stream\r\n");
    assert_eq!(
        (next.line(), next.line()),
        ("id: 3\n".into(), ": heartbeat\n".into())
    );
    assert_eq!(served.relay.stop().0, 0);
    assert_eq!(client.line(), "event: end\n");
}

#[test]
fn a_client_gets_only_the_events_it_asks_for() {
    let folder = migrated();
    let served = served(&folder);
    let events = [
        of_project(1, "p1", "u1"),
        of_project(2, "p2", "u1"),
        of_project(3, "p1", "u2"),
        line(4).replace("\"t.x\"", "\"other.y\""),
        of_project(5, "p1", "u1"),
    ];
    enqueue(folder.path(), &events.concat());
    for (query, expected) in [
        ("?after=0&project_id=p1", vec![1, 3, 5]),
        ("?after=0&project_id=p1&user_id=u1", vec![1, 5]),
        ("?after=0&topic=other.*", vec![4]),
        ("?after=0&topic=t.%3E", vec![1, 2, 3, 5]),
        ("?after=0&aggregate_id=2", vec![2]),
        ("?after=0&event_type=X&project_id=", vec![1, 2, 3, 4, 5]),
    ] {
        let mut client = Client::follow(&served.address, query, "");
        let found: Vec<i64> = client
            .events(expected.len())
            .into_iter()
            .map(|(_, n)| n)
            .collect();
        assert_eq!(found, expected, "{query}");
    }
    let wrong = |query: &str| {
        let answer = ask(
            &served.address,
            &format!("GET /v1/stream{query}"),
            &[HOST],
            "",
            DEADLINE,
        );
        (answer.status, answer.error())
    };
    assert_eq!(wrong("?topic=a.%3E.b").0, 400);
    assert_eq!(wrong("?after=-1").0, 400);
    assert_eq!(wrong("?after=1&last=1").0, 400);
}

#[test]
fn the_history_is_listed_counted_and_told() {
    let home = migrated();
    let served = served(&home);
    let folder = home.path();
    let events = [
        of_project(1, "p1", "u1"),
        of_project(2, "p2", "u1"),
        of_project(3, "p1", "u2"),
    ];
    enqueue(folder, &events.concat());
    let mut client = Client::follow(&served.address, "?after=0", "");
    client.events(3);
    let get = |path: &str| ask(&served.address, &format!("GET {path}"), &[HOST], "", DEADLINE);

    let page = get("/v1/events?project_id=p1&limit=1").json();
    assert_eq!(page["events"][0]["payload"]["n"], 3);
    assert_eq!(page["events"][0]["status"], "published");
    let next = page["next"].as_i64().unwrap();
    let page = get(&format!("/v1/events?project_id=p1&limit=10&before={next}")).json();
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(page["events"][0]["payload"]["n"], 1);
    assert!(page["next"].is_null());

    let counts = get("/v1/events/counts").json();
    assert_eq!(counts["partial"], false);
    assert!(counts["since"].is_string(), "{counts}");
    let sum: i64 = counts["counts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count["count"].as_i64().unwrap())
        .sum();
    assert_eq!(sum, 3);

    let id = "018f0000-0000-7000-8000-000000000002";
    let life = get(&format!("/v1/events/{id}")).json();
    let steps: Vec<&str> = life["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["what"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["committed", "published"]);
    assert_eq!(
        (&life["status"], &life["event"]["project_id"]),
        (&json!("published"), &json!("p2"))
    );
    assert_eq!(get("/v1/events/018f0000-0000-7000-8000-00000000ffff").status, 404);
    assert_eq!(get("/v1/events/x").status, 404, "any text is an id");
    assert_eq!(get("/v1/events/a%00").status, 400);
    assert_eq!(get("/v1/events?status=pending").status, 400);

    // The same on the command line.
    let listed = json(&run(folder, &["--json", "events", "list", "--project", "p1"]));
    assert_eq!(listed["events"].as_array().unwrap().len(), 2);
    let table = stdout(&run(folder, &["events", "list", "-n", "1"]));
    assert!(table.contains("POSITION") && table.contains("a/3"), "{table}");
    let told = stdout(&run(folder, &["events", "show", id]));
    assert!(
        told.contains("committed") && told.contains("position 2"),
        "{told}"
    );
    let counted = stdout(&run(folder, &["events", "counts", "--since", "1h"]));
    assert!(counted.contains("published"), "{counted}");
    let missing = run(
        folder,
        &["events", "show", "018f0000-0000-7000-8000-00000000ffff"],
    );
    assert_eq!(code(&missing), 1);
}

#[test]
fn without_an_event_log_the_answer_says_how_to_get_one() {
    let folder = migrated();
    let served = Served::start(
        folder.path(),
        &["--sink", "null:", "run", "--listen", "127.0.0.1:0"],
    );
    for path in ["/v1/stream", "/v1/events", "/v1/events/counts"] {
        let answer = ask(&served.address, &format!("GET {path}"), &[HOST], "", DEADLINE);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.error().contains("outbox.event_log.enabled"), "{answer:?}");
    }
    let listed = run(folder.path(), &["--sink", "null:", "events", "list"]);
    assert!(
        stderr(&listed).contains("outbox.event_log.enabled"),
        "{}",
        stderr(&listed)
    );
}
