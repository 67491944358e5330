//! The commands of the real binary, as a person or a script uses them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

fn pillarbox(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .env_remove("PILLARBOX_CONFIG")
        .env_remove("PILLARBOX_LOG");
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    pillarbox(folder).args(args).output().unwrap()
}

fn run_with_input(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut child = pillarbox(folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command may refuse the input before it has read it all.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)))
}

fn migrated() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["migrate"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    folder
}

fn line(id: u32) -> String {
    format!(
        r#"{{"id":"018f0000-0000-7000-8000-{id:012}","topic":"t.x","event_type":"X","aggregate_type":"a","aggregate_id":"{id}","payload":{{"n":{id}}}}}"#
    ) + "\n"
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// A relay whose stderr is read as it comes.
struct Running {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Running {
    fn start(folder: &Path, args: &[&str]) -> Self {
        let mut child = pillarbox(folder)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// Waits for a line with this text.
    fn says(&self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("it never said `{text}`"));
            if line.contains(text) {
                return line;
            }
        }
    }

    fn stop(mut self) -> (i32, String) {
        signal(&self.child, "TERM");
        let mut out = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        (self.child.wait().unwrap().code().unwrap(), out)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_demo_ends_with_a_verdict_from_what_was_really_seen() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        folder.path(),
        &["demo", "--exit", "--orders", "20", "--listen", "127.0.0.1:0"],
    );
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{text}{}", stderr(&output));
    assert!(
        text.contains(
            "Every committed order's event arrived, once, in order; the 7 rolled back never showed."
        ),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no colours where there is no terminal");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "it leaves nothing behind"
    );

    let output = run(
        folder.path(),
        &["demo", "--json", "--orders", "9", "--listen", "127.0.0.1:0"],
    );
    let verdict = json(&output);
    assert_eq!(
        (&verdict["kept"], &verdict["committed"], &verdict["delivered"]),
        (&true.into(), &6.into(), &6.into())
    );
}

#[test]
fn what_is_enqueued_is_pending_until_a_relay_has_run() {
    let folder = migrated();
    let args = [
        "enqueue",
        "--topic",
        "shop.order.placed",
        "--type",
        "OrderPlaced",
        "--aggregate-type",
        "order",
        "--aggregate-id",
        "o-1",
        "--payload",
        r#"{"total": 990}"#,
        "--header",
        "traceparent=00-x",
    ];
    let output = run(folder.path(), &args);
    assert!(
        stdout(&output).starts_with("new "),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    let status = json(&run(folder.path(), &["status", "--json"]));
    assert_eq!((&status["pending"], &status["dead"]), (&1.into(), &0.into()));
    assert!(stdout(&run(folder.path(), &["status"])).contains("pending"));

    let relay = Running::start(folder.path(), &["--sink", "stdout:", "run", "--no-http"]);
    relay.says("Relaying from sqlite:pillarbox.db");
    let deadline = Instant::now() + DEADLINE;
    while json(&run(folder.path(), &["status", "--json"]))["pending"] != 0 {
        assert!(Instant::now() < deadline, "it was never delivered");
    }
    let (exit, out) = relay.stop();
    assert_eq!(exit, 0);
    let event: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&event["topic"], &event["payload"]["total"]),
        (&"shop.order.placed".into(), &990.into())
    );
}

#[test]
fn the_same_id_is_written_once() {
    let folder = migrated();
    let input = line(1) + &line(2) + &line(1);
    let first = json(&run_with_input(
        folder.path(),
        &["enqueue", "--ndjson", "--json"],
        &input,
    ));
    assert_eq!((&first["new"], &first["duplicate"]), (&2.into(), &1.into()));
    let again = run_with_input(folder.path(), &["enqueue", "-"], &line(2));
    assert!(stdout(&again).starts_with("duplicate 018f"), "{}", stdout(&again));
    assert_eq!(json(&run(folder.path(), &["status", "--json"]))["pending"], 2);
}

#[test]
fn a_bad_line_is_named_and_nothing_is_written() {
    let folder = migrated();
    for (bad, why) in [("{\"topic\": \n", "line 2: "), ("{\"colour\": 1}\n", "line 2: ")] {
        let output = run_with_input(
            folder.path(),
            &["enqueue", "--ndjson"],
            &(line(1) + bad + &line(3)),
        );
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    let empty_topic = line(2).replace("t.x", "");
    let output = run_with_input(
        folder.path(),
        &["enqueue", "--ndjson"],
        &(line(1) + "\n" + &empty_topic),
    );
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("line 3: topic is empty"),
        "{}",
        stderr(&output)
    );
    assert_eq!(json(&run(folder.path(), &["status", "--json"]))["pending"], 0);
}

#[test]
fn a_missing_table_says_migrate() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["--database", "sqlite:x.db", "run", "--no-http"][..],
        &["--database", "sqlite:x.db", "status"],
    ] {
        let output = run(folder.path(), args);
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).contains("pillarbox migrate"),
            "{}",
            stderr(&output)
        );
    }
    let sql = stdout(&run(folder.path(), &["migrate", "--print"]));
    assert!(sql.contains("create table"), "{sql}");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "--print touches nothing"
    );
}

#[test]
fn an_unknown_key_names_the_nearest_and_every_command_refuses_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("pillarbox.yaml"),
        "outbox:\n  publisher:\n    batch_sise: 5\n",
    )
    .unwrap();
    let output = run(folder.path(), &["config", "check"]);
    assert_eq!(code(&output), 1);
    assert!(
        stderr(&output).contains("pillarbox.yaml:3:")
            && stderr(&output).contains("Did you mean `batch_size`?")
    );
    assert_eq!(
        json(&run(folder.path(), &["config", "check", "--json"]))["valid"],
        false
    );
    for command in ["run", "status", "migrate", "tail"] {
        let output = run(folder.path(), &[command]);
        assert_eq!(code(&output), 2, "{command}");
        assert!(
            stderr(&output).contains("Did you mean `batch_size`?"),
            "{command}"
        );
    }
}

#[test]
fn config_check_shows_what_is_in_force_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let output = pillarbox(folder.path())
        .args(["config", "check"])
        .env(
            "PILLARBOX_OUTBOX__DATABASE__URL",
            "postgres://app:geheim@127.0.0.1/shop",
        )
        .env("PILLARBOX_OUTBOX__PUBLISHER__BATCH_SIZE", "123")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        text.contains("batch_size: 123") && text.contains("app:***@") && !text.contains("geheim"),
        "{text}"
    );
    assert_eq!(json(&run(folder.path(), &["config", "schema"]))["type"], "object");
}

#[test]
fn a_database_that_is_away_ends_a_one_shot_command_and_makes_run_wait() {
    let folder = tempfile::tempdir().unwrap();
    let away = "postgres://app:geheim@127.0.0.1:1/shop";
    for command in [&["status"][..], &["migrate"], &["tail"]] {
        let output = run(folder.path(), &[&["--database", away], command].concat());
        assert_eq!(code(&output), 2, "{command:?}");
        assert!(!stderr(&output).contains("geheim"));
    }
    let relay = Running::start(folder.path(), &["--database", away, "run", "--no-http"]);
    let said = relay.says("Waiting for the database");
    assert!(!said.contains("geheim"), "{said}");
    relay.says("Trying again");
    assert_eq!(relay.stop().0, 0);
}

#[test]
fn a_relay_serves_its_status_and_health_and_sums_up_at_the_end() {
    let folder = migrated();
    let relay = Running::start(folder.path(), &["run", "--listen", "127.0.0.1:0"]);
    let said = relay.says("Serving http://");
    let address = said
        .trim_start_matches("Serving http://")
        .trim_end_matches('/')
        .to_owned();
    relay.says("Relaying from");
    let get = |path: &str, host: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    for (path, part) in [
        ("/livez", "alive"),
        ("/readyz", "ready"),
        ("/v1/status", "\"pending\":0"),
        ("/", "<title>Pillarbox</title>"),
    ] {
        let answer = get(path, "localhost");
        assert!(
            answer.starts_with("HTTP/1.0 200") && answer.contains(part),
            "{path}: {answer}"
        );
    }
    assert!(get("/v1/status", "elsewhere.example").starts_with("HTTP/1.0 421"));
    assert!(get("/v1/stream?from=x", "localhost").starts_with("HTTP/1.0 400"));

    let second = run(folder.path(), &["run", "--listen", &address]);
    assert_eq!(code(&second), 2);
    assert!(
        stderr(&second).contains("taken") && stderr(&second).contains("--listen"),
        "{}",
        stderr(&second)
    );
    assert_eq!(relay.stop().0, 0);

    let relay = Running::start(folder.path(), &["run", "--json", "--no-http"]);
    let deadline = Instant::now() + DEADLINE;
    while json(&run(folder.path(), &["status", "--json"]))["relays"]
        .as_array()
        .unwrap()
        .is_empty()
    {
        assert!(Instant::now() < deadline, "it never appeared");
    }
    let (exit, out) = relay.stop();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(exit, 0);
    for key in [
        "published",
        "dead",
        "statements",
        "cpu_seconds",
        "peak_bytes",
        "seconds",
        "relay",
    ] {
        assert!(!summary[key].is_null(), "{key}: {out}");
    }
}

#[test]
fn tail_shows_what_was_committed_whether_delivered_or_not() {
    let folder = migrated();
    run_with_input(
        folder.path(),
        &["enqueue", "--ndjson"],
        &(line(1) + &line(2) + &line(3)),
    );
    let output = run(folder.path(), &["tail", "-n", "2", "--follow=false", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[1]["status"], &lines[1]["event"]["payload"]["n"]),
        (&"pending".into(), &3.into())
    );
}

#[test]
fn a_closed_pipe_is_a_normal_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = pillarbox(folder.path())
        .args(["config", "schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
}

#[test]
fn every_command_teaches_by_example() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        "demo",
        "run",
        "migrate",
        "enqueue",
        "status",
        "tail",
        "streams",
        "config",
        "completions",
    ] {
        let help = stdout(&run(folder.path(), &[command, "--help"]));
        assert!(
            help.contains(&format!("pillarbox {command}")) && help.contains("\n  pillarbox "),
            "{command}: {help}"
        );
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            stdout(&run(folder.path(), &["completions", shell])).contains("enqueue"),
            "{shell}"
        );
    }
    let output = run(folder.path(), &["streams", "check"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("outbox.streams"));
}
