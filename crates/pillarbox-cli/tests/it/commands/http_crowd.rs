//! Clients that send nothing, or send slowly, must not keep others out.

use std::net::TcpStream;

use super::{dead_http::Served, *};

/// The maximum of connections at a time: 512, and those for clients of the stream.
const CONNECTIONS: usize = 512 + STREAM_CLIENTS;
const STREAM_CLIENTS: usize = 1;
/// The maximum of large bodies, and of writers, at a time.
const WRITERS: usize = 8;

fn served() -> (TempDir, Served) {
    let folder = migrated();
    let text = format!(
        "outbox:\n  sinks:\n    out: {{ url: \"null:\" }}\n  \
         http: {{ listen: \"127.0.0.1:0\", stream_clients_max: {STREAM_CLIENTS} }}\n"
    );
    std::fs::write(folder.path().join("pillarbox.yaml"), text).unwrap();
    let served = Served::start(folder.path(), &["run"]);
    (folder, served)
}

fn begun(served: &Served, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn idle_connections_are_closed() {
    let (_folder, served) = served();
    let silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| begun(&served, "GET /v1/st")).collect();
    // The next client waits, but not for ever.
    assert_eq!(served.get("/v1/status").0, 200);
    drop(silent);
}

fn head(length: usize) -> String {
    format!(
        "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[test]
fn slow_bodies_keep_no_writer_of_one_event_out() {
    let (_folder, served) = served();
    let slow: Vec<TcpStream> = (0..WRITERS)
        .flat_map(|_| [500, 500_000])
        .map(|length| begun(&served, &(head(length) + "{")))
        .collect();
    let event = line(1);
    let mut stream = begun(&served, &(head(event.len()) + &event));
    // Less than a slow client may take.
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
    drop(slow);
}

#[test]
fn a_large_body_without_a_place_does_not_wait_for_long() {
    let (_folder, served) = served();
    let mut large: Vec<TcpStream> = (0..=WRITERS)
        .map(|_| begun(&served, &(head(500_000) + "{")))
        .collect();
    for stream in &large {
        stream.set_nonblocking(true).unwrap();
    }
    let mut answer = vec![0; 4096];
    let read = until_ok_blocking(|| {
        let read = large.iter_mut().find_map(|stream| stream.read(&mut answer).ok());
        read.ok_or("nobody has an answer")
    });
    let answer = String::from_utf8_lossy(&answer[..read]).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: "), "{answer}");
}
