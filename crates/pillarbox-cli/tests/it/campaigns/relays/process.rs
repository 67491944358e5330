//! One relay: a child process and its log.

use std::{
    fs::{File, OpenOptions},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use pillarbox_testkit::{servers, wait};
use tokio::process::{Child, Command};

use super::PATIENCE;

pub(super) struct Process {
    n: usize,
    config: PathBuf,
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
    child: Option<Child>,
    /// How often it ended without being told to.
    exits: u64,
    complaints: Vec<String>,
}

impl Process {
    pub(super) fn new(n: usize, config: PathBuf, environment: Vec<(&'static str, String)>) -> Self {
        Self {
            n,
            log: config.with_extension("log"),
            config,
            environment,
            child: None,
            exits: 0,
            complaints: Vec::new(),
        }
    }

    pub(super) fn start(&mut self) {
        let log = self.open_log();
        let child = Command::new(env!("CARGO_BIN_EXE_pillarbox"))
            .arg("--config")
            .arg(&self.config)
            .args(["run", "--no-http"])
            .env("PILLARBOX_OUTBOX__PUBLISHER__NAME", format!("relay-{}", self.n))
            .env_remove("PILLARBOX_LOG")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.config.parent().unwrap())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    fn open_log(&self) -> File {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(super) async fn says(&mut self, words: &str) {
        wait::until_ok_within(PATIENCE, async || match self.text().contains(words) {
            true => Ok(()),
            false => Err(format!("relay {} never said `{words}`", self.n)),
        })
        .await;
    }

    /// Restarts it if it has ended by itself.
    pub(super) fn revive(&mut self) {
        let ended = self
            .child
            .as_mut()
            .is_none_or(|child| child.try_wait().unwrap().is_some());
        if ended {
            self.exits += 1;
            self.start();
        }
    }

    pub(super) fn signal(&self, name: &str) {
        if let Some(pid) = self.child.as_ref().and_then(Child::id) {
            // It may have ended by itself.
            let _ = servers::signal(name, &[pid]);
        }
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap();
        }
    }

    /// Sends SIGTERM. Records a complaint if the relay does not end in time or not with code 0.
    pub(super) async fn leave(&mut self, patience: Duration) {
        self.signal("TERM");
        let Some(child) = &mut self.child else { return };
        match tokio::time::timeout(patience, child.wait()).await {
            Err(_) => {
                self.complain(&format!("a relay did not stop within {patience:?} of SIGTERM"));
                self.kill().await;
            }
            // Without a code, the signal arrived before the relay could catch it.
            Ok(status) => {
                let code = status.unwrap().code().unwrap_or_default();
                if code != 0 {
                    self.complain(&format!("a relay ended with code {code} after SIGTERM"));
                }
            }
        }
        self.child = None;
    }

    fn complain(&mut self, words: &str) {
        self.complaints.push(words.to_owned());
    }

    pub(super) fn complaints(&mut self) -> Vec<String> {
        let text = self.text();
        let mut complaints = std::mem::take(&mut self.complaints);
        for alarming in ["panicked", "the sweep found"] {
            if let Some(line) = text.lines().find(|line| line.contains(alarming)) {
                complaints.push(format!("relay {} said: {line}", self.n));
            }
        }
        complaints
    }

    pub(super) fn exits(&self) -> u64 {
        self.exits
    }
}
