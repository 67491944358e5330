//! One relay: a child process, its log, and the signals it gets.

use std::{fs::File, io::Write, path::PathBuf, process::ExitStatus, time::Duration};

use pillarbox_testkit::servers;
use tokio::{
    process::{Child, Command},
    time::{Instant, timeout},
};

use super::PATIENCE;

/// Killed when dropped; then, if the test is failing, its log is shown.
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

    /// Waits until the log holds this.
    pub(in super::super) async fn says(&mut self, words: &str) {
        self.says_times(words, 1).await;
    }

    /// Waits until the log holds this so many times.
    pub(in super::super) async fn says_times(&mut self, words: &str, times: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.log().matches(words).count() < times {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!(
                    "relay {} ended ({status}) without saying `{words}`: {}",
                    self.name,
                    self.log()
                );
            }
            assert!(
                Instant::now() < deadline,
                "relay {} never said `{words}`",
                self.name
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `kill -9`.
    pub(in super::super) async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.ended().await;
    }

    /// SIGTERM: it must finish and exit 0.
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

    /// Waits for its end.
    pub(in super::super) async fn ended(&mut self) -> ExitStatus {
        let status = timeout(PATIENCE, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("relay {} does not end", self.name))
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

    /// Resident memory in bytes: now, and at most so far.
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
