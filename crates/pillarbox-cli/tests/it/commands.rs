//! The commands of the real binary, as a person or a script runs them.

mod accounts;
mod adopt;
#[cfg(feature = "bench")]
mod bench;
mod catalog;
mod check;
mod dead_http;
mod dead_terminal;
mod event_streams;
mod events;
mod events_http;
mod health;
mod http_access;
mod http_crowd;
mod http_fuzz;
mod inbox;
mod metrics;
mod migrate;
mod page;
mod relay;
mod settings;
mod standing;
mod stream_limits;
mod streams;

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use pillarbox_testkit::{
    servers,
    wait::{self, until_blocking, until_ok_blocking},
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
    // The command may refuse the input before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Waits until `status` shows no event in this state.
fn until_none(folder: &Path, state: &str) {
    wait::until_ok_blocking(|| {
        let status = json(&run(folder, &["status", "--json"]));
        if status[state] == 0 { Ok(()) } else { Err(status) }
    });
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
    servers::signal(name, &[child.id()]).unwrap();
}

/// A relay whose stderr is read while it runs.
struct Running {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Running {
    fn start(folder: &Path, args: &[&str]) -> Self {
        Self::spawn(pillarbox(folder).args(args))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
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
