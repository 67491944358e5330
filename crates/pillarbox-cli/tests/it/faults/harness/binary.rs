//! The binary under test, with a configuration file in its own folder.

use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use super::{Config, PATIENCE, Relay};

pub(in super::super) struct Binary {
    pub config: Config,
    folder: TempDir,
}

impl Binary {
    pub(in super::super) fn new(config: Config) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("pillarbox.yaml"), config.yaml()).unwrap();
        Self { config, folder }
    }

    /// The working folder. A SQLite file with a relative path is in it.
    pub(in super::super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command
            .arg("--config")
            .arg(self.folder.path().join("pillarbox.yaml"))
            .args(arguments)
            .env_remove("PILLARBOX_LOG")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(in super::super) async fn run(&self, arguments: &[&str]) -> Output {
        self.feed(arguments, "").await
    }

    /// Runs a command to its end with this input on stdin.
    pub(in super::super) async fn feed(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads nothing may have closed its stdin.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        timeout(PATIENCE, child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("pillarbox {arguments:?} did not end"))
            .unwrap()
    }

    /// Like [`run`](Self::run), but the command must succeed. Returns what it printed.
    pub(in super::super) async fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "pillarbox {arguments:?}: {}: {said}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a relay and waits until it has found its database.
    pub(in super::super) async fn relay(&self, name: &str) -> Relay {
        let mut relay = self.spawn(name);
        relay.says("Relaying from").await;
        relay
    }

    /// Starts a relay, waits until it has found its database and serves HTTP, and returns its address.
    pub(in super::super) async fn serving(&self, name: &str) -> (Relay, String) {
        let relay = self.serving_at(name, "127.0.0.1:0").await;
        let log = relay.log();
        let (_, address) = log.split_once("Serving http://").unwrap();
        let (address, _) = address.split_once('/').unwrap();
        (relay, address.to_owned())
    }

    /// Starts a relay that serves HTTP at this address, and waits until it has found its database.
    pub(in super::super) async fn serving_at(&self, name: &str, address: &str) -> Relay {
        let mut relay = self.start(name, &["run", "--listen", address]);
        relay.says("Relaying from").await;
        relay
    }

    /// Starts a relay without waiting for anything.
    pub(in super::super) fn spawn(&self, name: &str) -> Relay {
        self.start(name, &["run", "--no-http"])
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Relay {
        let log = self
            .folder
            .path()
            .join(format!("{name}-{}", uuid::Uuid::now_v7()));
        let mut command = self.command(arguments);
        command.env("PILLARBOX_OUTBOX__PUBLISHER__NAME", name);
        Relay::start(name, command, log)
    }
}
