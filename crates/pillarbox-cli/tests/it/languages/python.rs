//! The example `chat`: FastAPI and SQLAlchemy with psycopg.

use std::path::PathBuf;

use pillarbox_testkit::servers;
use tokio::process::Command;

use super::{Service, example, migrate, nothing_outlives, number, run, told};

/// A Python with the packages of the example, and a database.
async fn scene() -> Option<(PathBuf, String)> {
    let python = servers::chat_python()?;
    Some((python, servers::postgres().await?.database().await))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_chat_is_told_once_and_none_that_was_rolled_back() {
    let Some((python, database)) = scene().await else {
        return;
    };
    let mut story = Command::new(python);
    story
        .arg(example("chat/story.py"))
        .args(["--once", "--pillarbox", env!("CARGO_BIN_EXE_pillarbox")]);
    let told = told(&run(&mut story, &database).await);
    assert!(
        told.contains("11 events were committed, and each arrived once"),
        "{told}"
    );
    // One more than the committed events: the example sends a last one to know that nothing comes after the
    // others.
    assert_eq!(number(&database, "select count(*) from messages").await, 12);
    let published = "select count(*) from outbox_events e join messages m on m.id::text = e.id
        where e.status = 'published' and e.aggregate_id = m.session_id and e.user_id = m.user_id
          and e.payload::json->>'text' = m.text";
    assert_eq!(number(&database, published).await, 12);
    assert_eq!(number(&database, "select count(*) from outbox_events").await, 12);
}

/// Headless Chromium: live messages, reconnects after the relay, the service and both were killed, and nothing of another
/// user or project.
#[tokio::test(flavor = "multi_thread")]
async fn each_window_of_the_chat_shows_the_messages_of_its_user_once_and_in_order() {
    let Some((chromium, browser)) = servers::browser() else {
        return;
    };
    let Some((python, database)) = scene().await else {
        return;
    };
    let mut story = Command::new(browser);
    story
        .arg(example("chat/browser.py"))
        .args(["--pillarbox", env!("CARGO_BIN_EXE_pillarbox")])
        .arg("--chromium")
        .arg(chromium)
        .arg("--python")
        .arg(python);
    let told = told(&run(&mut story, &database).await);
    assert!(
        told.contains("[45, 45, 2, 3] messages in four windows: each once"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_is_killed_leaves_nothing_running() {
    let Some((python, database)) = scene().await else {
        return;
    };
    let mut story = Command::new(python);
    story
        .arg(example("chat/story.py"))
        .args(["--pillarbox", env!("CARGO_BIN_EXE_pillarbox")]);
    nothing_outlives(&mut story, &database).await;
}

/// How psycopg sends a text and its own JSON types, with and without a prepared statement, and how it reports
/// a refusal.
const PAYLOADS: &str = r#"
import os, psycopg
from psycopg.types.json import Json, Jsonb
with psycopg.connect(os.environ["PILLARBOX_OUTBOX__DATABASE__URL"]) as connection:
    for prepare in (False, True):
        for payload in ('{"b":1, "a":2}', Json({"b": 1}), Jsonb({"b": 1})):
            connection.execute("select pillarbox.enqueue(%s, %s, %s, %s, headers => %s)",
                               ("t", "k", "T", payload, Jsonb({"h": "ü"})), prepare=prepare)
    connection.commit()
    try:
        connection.execute("select pillarbox.enqueue('t', 'k', 'T', '{')")
    except psycopg.Error as error:
        print(error.sqlstate, error.diag.message_primary, "|", error.diag.message_hint)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn psycopg_finds_the_function_for_each_of_its_types() {
    let Some((python, database)) = scene().await else {
        return;
    };
    migrate(&database).await;
    let refused = told(&run(Command::new(&python).args(["-c", PAYLOADS]), &database).await);
    assert!(
        refused.starts_with("PB400 the payload is not JSON: "),
        "{refused}"
    );
    assert!(refused.contains("| Nothing was written."), "{refused}");
    let written =
        "select count(*) from outbox_events where headers->>'h' = 'ü' and payload::json->>'b' = '1'";
    assert_eq!(number(&database, written).await, 6);
    let as_given = r#"select count(*) from outbox_events where payload = '{"b":1, "a":2}'"#;
    assert_eq!(number(&database, as_given).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chat_passes_the_pressure_on() {
    let Some((python, database)) = scene().await else {
        return;
    };
    migrate(&database).await;
    let port = servers::free_port();
    let mut command = Command::new(python);
    command
        .args([
            "-m",
            "uvicorn",
            "--log-level",
            "warning",
            "--port",
            &port.to_string(),
            "chat.app:app",
        ])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(example("chat"));
    let service = Service::start(&mut command, &database, port).await;
    let path = "/my/projects/p-1/chat/s-1/message";
    let taken = service
        .feels_the_pressure(path, "x-user-id: ada\r\n", r#"{"text": "hello"}"#)
        .await;
    assert_eq!(number(&database, "select count(*) from messages").await, taken);
    service.end().await;
}

/// A relay that ends the stream because the token has expired, and then does not accept it any more.
const EXPIRED: &str = r#"
import asyncio, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
sys.path.insert(0, sys.argv[1])
from chat.follow import Refused, follow

asked = []
class Relay(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        first = len(asked) == 1
        body = b'{"heartbeat":true,"position":7}\n{"end":"token_expired","position":8}\n' if first else b'{"error":"it has expired"}'
        self.send_response(200 if first else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

relay = HTTPServer(("127.0.0.1", 0), Relay)
threading.Thread(target=relay.serve_forever, daemon=True).start()

async def told():
    try:
        async for _ in follow([f"http://127.0.0.1:{relay.server_port}"], 3, "token"):
            pass
    except Refused as why:
        print(why, asked)
asyncio.run(told())
"#;

#[tokio::test]
async fn the_follower_of_the_chat_says_that_its_token_has_expired() {
    let Some(python) = servers::chat_python() else {
        return;
    };
    let output = Command::new(python)
        .args(["-c", EXPIRED, &example("chat").display().to_string()])
        .output()
        .await
        .unwrap();
    let told = told(&output);
    assert!(
        told.contains("401") && told.contains("it has expired") && told.contains("after=7"),
        "{told}"
    );
}
