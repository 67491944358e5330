//! `/v1/stream` when it has to refuse or to end a client.

use std::io::{BufRead, BufReader};

use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::{
    dead_http::{Served, enqueue},
    event_streams::{Client, lines},
    http_access::ask,
    *,
};

const HOST: &str = "Host: localhost";

/// Changes the relay's database as an operator would.
fn change(folder: &Path, sql: &'static str) {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("pillarbox.db"))
        .busy_timeout(DEADLINE);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let pool = SqlitePool::connect_with(options).await.unwrap();
        sqlx::raw_sql(sql).execute(&pool).await.unwrap();
        pool.close().await;
    });
}

fn status(address: &str, query: &str) -> (u16, Value) {
    let answer = ask(address, &format!("GET /v1/stream{query}"), &[HOST], "", DEADLINE);
    (answer.status, answer.json())
}

#[test]
fn a_client_whose_position_is_gone_is_refused_with_what_to_do() {
    let home = migrated();
    let served = Served::start(home.path(), &["run", "--listen", "127.0.0.1:0"]);
    enqueue(home.path(), &lines(1..=5));
    Client::follow(&served.address, "?after=0", "").events(5);
    // What retention does after some days.
    change(
        home.path(),
        "delete from outbox_events_log where position <= 3;
         insert into outbox_events_records (space, name, place, version, value, written_at)
         values ('event_log', 'expired', 0, 1, '3', 0)",
    );
    let (code, answer) = status(&served.address, "?after=2");
    assert_eq!((code, &answer["expired"]), (410, &json!(3)), "{answer}");
    assert!(
        answer["error"].as_str().unwrap().contains("Start after 3"),
        "{answer}"
    );
    let mut client = Client::follow(&served.address, "?after=0", "");
    assert_eq!(client.events(2), [(4, 4), (5, 5)]);
    let (code, answer) = status(&served.address, "?after=6");
    assert_eq!((code, &answer["last"]), (409, &json!(5)), "{answer}");
}

/// A client that has seen more than the log has now is told, whatever the log has when it comes back.
#[test]
fn a_client_of_a_log_that_was_emptied_is_told_and_the_log_goes_on_far_above() {
    let home = migrated();
    let served = Served::start(home.path(), &["run", "--listen", "127.0.0.1:0"]);
    enqueue(home.path(), &lines(1..=5));
    let mut client = Client::follow(&served.address, "?after=0", "");
    client.events(5);
    change(
        home.path(),
        "delete from outbox_events_log; delete from sqlite_sequence where name = 'outbox_events_log'",
    );
    enqueue(home.path(), &lines(6..=15));
    let end = client.event();
    assert_eq!(end["end"], "replaced", "{end}");
    let (code, _) = status(&served.address, "?after=5");
    assert_eq!(code, 409);
    let events = Client::follow(&served.address, "?after=0", "").events(10);
    assert!(events[0].0 > 100_000_000_000_000, "{events:?}");
    assert_eq!(
        events.iter().map(|(_, n)| *n).collect::<Vec<_>>(),
        (6..=15).collect::<Vec<_>>()
    );
}

#[test]
fn a_client_too_many_is_refused_until_another_one_leaves() {
    let home = migrated();
    let mut command = pillarbox(home.path());
    command
        .args(["run", "--listen", "127.0.0.1:0"])
        .env("PILLARBOX_OUTBOX__HTTP__STREAM_CLIENTS_MAX", "2");
    let relay = Running::spawn(&mut command);
    let address = relay
        .says("Serving http://")
        .trim_start_matches("Serving http://")
        .trim_end_matches('/')
        .to_owned();
    let first = Client::follow(&address, "?after=0", "");
    let _second = Client::follow(&address, "?after=0", "");
    let (code, answer) = status(&address, "?after=0");
    assert_eq!(code, 503, "{answer}");
    assert!(
        answer["error"].as_str().unwrap().contains("stream_clients_max"),
        "{answer}"
    );
    drop(first);
    until_blocking("its place is free", || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let request = "GET /v1/stream?after=0 HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.contains(" 200 ")
    });
}
