//! One relay: a child process, its log and its signals.

use std::{fs::File, io::Write, path::PathBuf, process::ExitStatus};

use pillarbox_testkit::{servers, wait};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::PATIENCE;

/// Dropping it kills the process. If the test is failing, it also prints the log.
pub(in super::super) struct Relay {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Relay {
    pub(super) fn start(name: &str, mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self {
            name: name.to_owned(),
            child: command.spawn().unwrap(),
            log,
        }
    }

    pub(in super::super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log contains this text.
    pub(in super::super) async fn says(&mut self, words: &str) {
        self.says_times(words, 1).await;
    }

    /// Waits until the log contains this text so many times.
    pub(in super::super) async fn says_times(&mut self, words: &str, times: usize) {
        wait::until_ok(async || {
            if self.log().matches(words).count() >= times {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!(
                    "relay {} ended ({status}) without saying `{words}`: {}",
                    self.name,
                    self.log()
                );
            }
            Err(format!("relay {} never said `{words}`", self.name))
        })
        .await;
    }

    /// `kill -9`.
    pub(in super::super) async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.ended().await;
    }

    /// Sends SIGTERM. The relay must finish and exit with 0.
    pub(in super::super) async fn stop(mut self) {
        self.signal("TERM").await;
        let status = self.ended().await;
        assert!(
            status.success(),
            "after SIGTERM relay {}: {status}: {}",
            self.name,
            self.log()
        );
    }

    /// Waits for the end of the process.
    pub(in super::super) async fn ended(&mut self) -> ExitStatus {
        let status = timeout(PATIENCE, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("relay {} did not end", self.name))
            .unwrap();
        let log = self.log();
        assert!(!log.contains("panicked"), "relay {}: {log}", self.name);
        assert!(
            !log.contains("the sweep found"),
            "discovery of relay {} missed events: {log}",
            self.name
        );
        status
    }

    /// Resident memory in bytes: the current value and the highest so far.
    pub(in super::super) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
            kibibytes * 1024
        };
        (of("VmRSS:"), of("VmHWM:"))
    }

    pub(in super::super) async fn signal(&self, signal: &str) {
        servers::signal(signal, &[self.child.id().unwrap()]).unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let end = &log[log.len() - log.len().min(4_000)..];
            let _ = writeln!(std::io::stderr(), "--- the log of relay {}:\n{end}", self.name);
        }
    }
}
