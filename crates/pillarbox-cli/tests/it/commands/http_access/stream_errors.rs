//! The errors of `/v1/stream` are in its description. schemathesis can't ask for a stream, which does not end.

use std::collections::BTreeSet;

use super::*;

const STREAM: &str = "/v1/stream";

struct Described(Value);

impl Described {
    /// Asks, and looks for the status and the content type of the answer in the description. Returns the status.
    fn answer(&self, served: &Served, query: &str, headers: &[&str]) -> u16 {
        let request = format!("GET {STREAM}{query}");
        let answer = ask(&served.address, &request, headers, "", Duration::from_secs(5));
        let kind = answer
            .head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "))
            .unwrap_or_else(|| panic!("{answer:?}"));
        let content = &self.0["responses"][answer.status.to_string()]["content"];
        assert!(content[kind].is_object(), "{query} {headers:?}: {answer:?}");
        if answer.status != 200 {
            assert_eq!(content[kind]["schema"]["$ref"], "#/components/schemas/ErrorBody");
            assert!(!answer.error().is_empty());
        }
        answer.status
    }
}

/// Pretends that all entries of the log are of 1970.
fn age(folder: &Path) {
    let database = format!("sqlite:{}", folder.join("pillarbox.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let pool = sqlx::SqlitePool::connect(&database).await.unwrap();
        let aged = sqlx::query("update outbox_events_log set at = 0").execute(&pool);
        assert_eq!(aged.await.unwrap().rows_affected(), 2);
        pool.close().await;
    });
}

#[test]
fn every_answer_of_the_stream_is_described() {
    let folder = migrated();
    let document = json(&run(folder.path(), &["openapi"]));
    let described = Described(document["paths"][STREAM]["get"].clone());
    let roles: [(&str, &[&str]); 4] = [
        ("reader", &["--role", "read"]),
        ("producer", &["--role", "produce"]),
        ("shop", &["--role", "read", "--project", "shop"]),
        ("eager", &["--role", "read"]),
    ];
    let tokens = roles.map(|(name, args)| new_token(folder.path(), &[&["--name", name], args].concat()));
    let entries: Vec<&Value> = tokens.iter().map(|(_, entry)| entry).collect();
    let [reader, producer, shop, eager] = [0, 1, 2, 3].map(|n| bearer(&tokens[n].0));
    let http = json!({
        "listen": "127.0.0.1:0", "tokens": entries, "stream_clients_max": 1,
        "rate_limit": { "requests_per_second": 50, "burst": 50 },
    });
    configure(folder.path(), &http);
    let events = (1..=2)
        .map(|n| line(n).replace("t.x", "kept.x"))
        .collect::<String>();
    super::super::dead_http::enqueue(folder.path(), &events);
    let served = Served::start(folder.path(), &["run"]);
    until_blocking("both are delivered", || {
        let status = get(
            &served,
            "/v1/events/018f0000-0000-7000-8000-000000000002",
            &[&reader],
        );
        status.status == 200 && status.json()["status"] == "published"
    });
    let mut seen = BTreeSet::new();
    let mut asked = |served: &Served, expected: u16, query: &str, headers: &[&str]| {
        until_ok_blocking(|| {
            let status = described.answer(served, query, &[&[HOST], headers].concat());
            // The place of the client before may not be free yet, and this test asks often.
            if status != expected && matches!(status, 429 | 503) {
                return Err(status);
            }
            assert_eq!(status, expected, "{query} {headers:?}");
            Ok(())
        });
        seen.insert(expected);
    };
    asked(&served, 200, "?after=0", &[&shop]);
    asked(&served, 200, "?after=0", &[&shop, "Accept: text/event-stream"]);
    for query in [
        "?after=x",
        "?after=-1",
        "?from=1",
        "?after=1&last=1",
        "?last=10001",
        "?topic=a..b",
    ] {
        asked(&served, 400, query, &[&shop]);
    }
    asked(&served, 400, "", &[&shop, "Last-Event-ID: x"]);
    asked(&served, 400, "", &[&shop, HOST]);
    asked(&served, 401, "", &[]);
    asked(&served, 401, "", &[&bearer("wrong")]);
    asked(&served, 403, "", &[&producer]);
    asked(&served, 403, "?project_id=other", &[&shop]);
    asked(&served, 403, "", &[&shop, "Origin: https://evil.example"]);
    asked(&served, 409, "?after=900", &[&shop]);
    let client = {
        let mut client = TcpStream::connect(&served.address).unwrap();
        write!(
            client,
            "GET {STREAM}?after=0 HTTP/1.1\r\n{HOST}\r\n{reader}\r\n\r\n"
        )
        .unwrap();
        client.read_exact(&mut [0; 12]).unwrap();
        client
    };
    asked(&served, 503, "", &[&reader]);
    drop(client);
    while get(&served, "/v1/openapi.json", &[&eager]).status != 429 {}
    asked(&served, 429, "", &[&eager]);
    let misdirected = described.answer(&served, "", &["Host: evil.example", &reader]);
    assert_eq!(misdirected, 421);
    assert_eq!(served.relay.stop().0, 0);

    age(folder.path());
    let served = Served::start(folder.path(), &["run"]);
    until_blocking("the entries have expired", || {
        get(&served, "/v1/events", &[&reader]).json()["events"] == json!([])
    });
    asked(&served, 410, "?after=1", &[&reader]);
    assert_eq!(served.relay.stop().0, 0);

    let args = ["--sink", "null:", "run"];
    let config = json!({ "outbox": { "http": http } });
    std::fs::write(folder.path().join("pillarbox.yaml"), config.to_string()).unwrap();
    let served = Served::start(folder.path(), &args);
    asked(&served, 404, "", &[&reader]);
    let all = [200, 400, 401, 403, 404, 409, 410, 429, 503];
    assert_eq!(seen, BTreeSet::from(all));
}
