//! Requests that no proper client would send.

use std::net::{Shutdown, TcpStream};

use pillarbox_testkit::{
    fuzz::{self, Fuzz, SECRET, assert_no_secret, assert_says_something},
    torture::Campaign,
};

use super::{
    dead_http::{Served, configure, enqueue, lost},
    *,
};

const PATHS: &[&str] = &[
    "/v1/dead",
    "/v1/dead/groups",
    "/v1/dead/018f0000-0000-7000-8000-000000000001",
    "/v1/stream",
    "/v1/events",
    "/v1/events/counts",
    "/v1/events/018f0000-0000-7000-8000-000000000004",
    "/v1/status",
    "/v1/scale",
    "/v1/catalog",
    "/livez",
    "/readyz",
    "/",
    "/v1/nothing",
];

const QUERIES: &[&str] = &[
    "topic=lost.%3E&key=a&limit=2",
    "reason=permanent_failure&state=all&before=7",
    "since=2026-01-31T12:00:00Z&event_type=X&fingerprint=1f0c9a44be21",
    "state=replayed&limit=1000",
    "after=0&topic=kept.%3E&project_id=p&user_id=u",
    "last=10000&aggregate_type=a&aggregate_id=4&event_type=X",
    "status=published&since=2026-01-31T12:00:00Z&until=2036-01-31T12:00:00Z&correlation_id=c&before=9&limit=2",
];

const BODIES: &[&str] = &[
    r#"{"filter":{"topic":"lost.>","key":"a"},"by":"Zoë","why":"mended","dry_run":true}"#,
    r#"{"filter":{"ids":["018f0000-0000-7000-8000-000000000001"],"reason":"permanent_failure"},"as":"new","why":"x"}"#,
    r#"{"all":true,"dry_run":true,"why":"all of them","filter":{"since":"2026-01-31T12:00:00Z","fingerprint":"a","event_type":"X"}}"#,
    r#"{"filter":{"key":"b"},"why":"again","as":"same"}"#,
];

#[derive(Debug)]
struct Input {
    bytes: Vec<u8>,
    /// Whether it is valid HTTP. Then it must be answered.
    well_formed: bool,
}

fn input(fuzz: &mut Fuzz) -> Input {
    let request = match fuzz.below(2) {
        0 => get(fuzz),
        _ => post(fuzz),
    };
    if fuzz.one_in(6) {
        return Input {
            bytes: fuzz.mutated(&request),
            well_formed: false,
        };
    }
    Input {
        bytes: request,
        well_formed: true,
    }
}

const EVENTS: &str = r#"[{"id":"018f0000-0000-7000-8000-000000000009","topic":"t.x","event_type":"X","aggregate_type":"a","aggregate_id":"1",
"aggregate_version":3,"partition_key":"k","payload":{"n":1},"headers":{"a":"b"},"available_at":"2026-01-31T12:00:00Z","max_attempts":3}]"#;

fn get(fuzz: &mut Fuzz) -> Vec<u8> {
    let path = fuzz.pick(PATHS);
    let path = if fuzz.one_in(4) {
        percent_encoded(&fuzz.mutated(path.as_bytes()), b"/")
    } else {
        path.to_owned()
    };
    let query = fuzz.pick(QUERIES);
    let query = percent_encoded(&fuzz.mutated(query.as_bytes()), b"=&%+");
    format!("GET {path}?{query} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {SECRET}\r\n\r\n")
        .into_bytes()
}

fn post(fuzz: &mut Fuzz) -> Vec<u8> {
    let path = fuzz.pick(&["/v1/dead/replay", "/v1/dead/discard", "/v1/events"]);
    let example = match path {
        "/v1/events" => EVENTS,
        _ => fuzz.pick(BODIES),
    };
    let body = match fuzz.below(20) {
        0 => fuzz.json().into_bytes(),
        1 => format!("{{\"filter\":{}}}", fuzz.json()).into_bytes(),
        2 => vec![b' '; 70_000],
        _ => fuzz.mutated(example.as_bytes()),
    };
    let kind = match fuzz.below(20) {
        0 => "text/plain",
        1..4 if path == "/v1/events" => "application/x-ndjson",
        _ => "application/json",
    };
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {SECRET}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

/// Encodes everything except letters, digits and the bytes in `left`.
fn percent_encoded(bytes: &[u8], left: &[u8]) -> String {
    let short = &bytes[..bytes.len().min(2_000)];
    let mut text = String::new();
    for byte in short {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || left.contains(byte) {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    if left.contains(&b'/') && !text.starts_with('/') {
        text.insert(0, '/');
    }
    text
}

fn answer(address: &str, input: &Input) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // The answer may arrive, and the connection end, before the whole request is read.
    let _ = stream.write_all(&input.bytes);
    if !input.well_formed {
        // The request may announce more bytes than it has.
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("no answer within {DEADLINE:?}: {error}"),
        }
        // A stream does not end.
        if is_stream(&answer) {
            break;
        }
    }
    // The end of what was read of a stream can be in the middle of a character.
    String::from_utf8_lossy(&answer).into_owned()
}

fn is_stream(answer: &[u8]) -> bool {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let head = String::from_utf8_lossy(&answer[..end.unwrap_or_default()]);
    head.contains(" 200 ") && head.contains("application/x-ndjson")
}

fn judge(answer: &str, well_formed: bool) {
    // In mangled bytes the secret may be anywhere, also where it is no secret.
    if well_formed {
        assert_no_secret(answer);
    }
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        assert!(!well_formed, "no answer: {answer:?}");
        return;
    };
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((200..500).contains(&status), "{answer}");
    // If it is not HTTP, the server itself answers, without a body.
    if status >= 400 && (well_formed || head.contains("application/json")) && !matches!(status, 414 | 431) {
        let problem: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}"));
        assert_says_something(&problem["error"].as_str().unwrap().replace(SECRET, ""));
    }
}

/// Mangled requests to the HTTP API: each is answered, none with a 5xx, and errors have a message.
#[test]
fn torture_fuzz_http() {
    let campaign = Campaign::begin("fuzz_http");
    let folder = migrated();
    configure(folder.path(), "");
    let file = folder.path().join("pillarbox.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config + "  event_log: { enabled: true }\n").unwrap();
    let kept = line(4).replace("t.x", "kept.x");
    enqueue(
        folder.path(),
        &(lost(1, "a") + &lost(2, "a") + &lost(3, "b") + &kept),
    );
    let served = Served::start(folder.path(), &["run"]);
    served.until_open(3);
    until_blocking("the relay has looked at the outbox", || {
        served.get("/v1/scale").0 == 200
    });
    let mut tried = 0;
    while campaign.goes_on(tried, fuzz::INPUTS) {
        let input = input(&mut Fuzz::new(&campaign, tried));
        let _shown = ShownOnFailure(&input);
        judge(&answer(&served.address, &input), input.well_formed);
        tried += 1;
    }
    assert_eq!(served.get("/v1/status").0, 200);
    let said: Vec<String> = served.relay.lines.try_iter().collect();
    assert!(!said.iter().any(|line| line.contains("panicked")), "{said:?}");
    fuzz::said(&campaign, tried);
    assert_eq!(served.relay.stop().0, 0);
}

struct ShownOnFailure<'a>(&'a Input);

impl Drop for ShownOnFailure<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let text = String::from_utf8_lossy(&self.0.bytes);
        let start: String = text.chars().take(3_000).collect();
        let _ = writeln!(std::io::stderr(), "the request: {start:?}");
    }
}
