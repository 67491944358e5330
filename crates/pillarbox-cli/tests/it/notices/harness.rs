//! An outbox whose events die because no route matches their topic, and relays on it.

use std::{
    fs::File,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

pub(super) use pillarbox_testkit::wait::until_blocking as until;
use pillarbox_testkit::{
    servers,
    webhooks::{Receiver, Request},
};
use serde_json::Value;
use tempfile::TempDir;

pub(super) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(super) const TOKEN: &str = "geheim-token";

pub(super) struct Scene {
    pub folder: TempDir,
    database: String,
}

/// One scene for each installed database.
pub(super) async fn scenes() -> Vec<Scene> {
    let mut databases = vec!["sqlite:outbox.db".to_owned()];
    if let Some(postgres) = servers::postgres().await {
        databases.push(postgres.database().await);
    }
    databases.into_iter().map(Scene::new).collect()
}

impl Scene {
    pub(super) fn sqlite() -> Self {
        Self::new("sqlite:outbox.db".to_owned())
    }

    fn new(database: String) -> Self {
        let scene = Self {
            folder: tempfile::tempdir().unwrap(),
            database,
        };
        scene.configure("", "");
        scene.done(&["migrate"]);
        scene
    }

    /// Writes the configuration. `routes` come after the route of `kept.>`; `rest` are lines of YAML under
    /// `outbox:`.
    pub(super) fn configure(&self, routes: &str, rest: &str) {
        let text = format!(
            "outbox:\n  database: {{ url: '{}' }}\n  sinks: {{ out: {{ url: 'stdout:' }} }}\n  \
             routes: [{{ topic: 'kept.>', sink: out }}{routes}]\n{rest}\n",
            self.database
        );
        std::fs::write(self.folder.path().join("pillarbox.yaml"), text).unwrap();
    }

    /// Turns on notices by log, webhook and command, with short waits. `more` are further keys of the
    /// notifications.
    pub(super) fn tells(&self, port: u16, more: &str) {
        self.configure("", &self.telling(port, more));
    }

    pub(super) fn telling(&self, port: u16, more: &str) -> String {
        let quick = "gather_ms: 500, check_interval_seconds: 1, recovery_wait_seconds: 1, retry_delays_seconds: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]";
        let told = self.told_file().display().to_string();
        let script = format!("env > {told}.env && cat >> {told} && echo >> {told}");
        format!(
            "  dlq:\n    dlq_notification_enabled: true\n    notifications: {{ {quick}{more}, \
             webhooks: [{{ url: 'http://127.0.0.1:{port}/{TOKEN}?key={TOKEN}', secret: '{SECRET}' }}], \
             commands: [{{ command: [sh, -c, '{script}'] }}] }}\n"
        )
    }

    pub(super) fn told_file(&self) -> PathBuf {
        self.folder.path().join("told")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command
            .current_dir(self.folder.path())
            .args(arguments)
            .stdin(Stdio::null())
            .env_remove("PILLARBOX_CONFIG")
            .env_remove("PILLARBOX_LOG");
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(super) fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [&["--json"], arguments].concat();
        serde_json::from_str(&self.done(&arguments)).unwrap()
    }

    /// Writes `count` events of a topic in one transaction, each with its own key.
    pub(super) fn enqueue(&self, topic: &str, count: usize) {
        let mut child = self
            .command(&["enqueue", "--ndjson"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for n in 0..count {
            let line = format!(
                r#"{{"topic":"{topic}","event_type":"X","aggregate_type":"a","aggregate_id":"{n}","payload":{{}}}}"#
            );
            writeln!(stdin, "{line}").unwrap();
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }

    pub(super) fn relay(&self, name: &str) -> Relay {
        let log = self.folder.path().join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let child = self
            .command(&["run", "--no-http", "--log", "debug"])
            .env("PILLARBOX_OUTBOX__PUBLISHER__NAME", name)
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Relay { child, log }
    }

    /// The number of open letters.
    pub(super) fn dead(&self) -> u64 {
        let groups = self.json(&["dead", "list"]);
        let groups = groups["groups"].as_array().unwrap();
        groups.iter().map(|group| group["count"].as_u64().unwrap()).sum()
    }

    pub(super) fn until_dead(&self, count: u64) {
        until(&format!("{count} are dead"), || self.dead() == count);
    }

    pub(super) fn discard_all(&self) {
        self.done(&["dead", "discard", "--all", "--why", "a test", "--yes"]);
    }

    /// The notices that the command received.
    pub(super) fn commanded(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.told_file()).unwrap_or_default();
        // The last line may not be complete yet.
        text.lines()
            .map_while(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// Dropping it kills the process.
pub(super) struct Relay {
    child: Child,
    log: PathBuf,
}

impl Relay {
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(super) fn says(&self, words: &str) {
        until(&format!("the log says `{words}`"), || self.log().contains(words));
    }

    /// Sends SIGTERM and returns the log.
    pub(super) fn stop(mut self) -> String {
        servers::signal("TERM", &[self.child.id()]).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
        self.log()
    }

    /// Kills the relay and returns the log.
    pub(super) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = std::io::stderr().write_all(self.log().as_bytes());
        }
    }
}

/// Waits for this many requests and returns them.
pub(super) fn received(receiver: &Receiver, count: usize) -> Vec<Request> {
    until(&format!("{count} notices came"), || {
        receiver.requests().len() >= count
    });
    receiver.requests()
}

/// The kind of a notice and its fingerprint.
pub(super) fn what(notice: &Value) -> (String, String) {
    let kind = notice["type"].as_str().unwrap();
    let kind = kind.trim_start_matches("pillarbox.dead_letters.");
    (
        kind.to_owned(),
        notice["data"]["fingerprint"].as_str().unwrap().to_owned(),
    )
}
