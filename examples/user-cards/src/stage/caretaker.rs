//! Ends the processes of the story when the story itself is killed.

use std::{io::Write as _, process::Stdio};

use anyhow::{Context, Result};
use tokio::process::Child;

/// Only this process holds its stdin open. `$1` is the folder of the logs.
const SCRIPT: &str =
    r#"trap '' INT TERM HUP; while read -r pid; do pids="$pids $pid"; done; kill -9 $pids; rm -rf "$1""#;

pub(super) struct Caretaker(std::process::Child);

impl Caretaker {
    pub(super) fn start(folder: &std::path::Path) -> Result<Self> {
        let shell = std::process::Command::new("sh")
            .args(["-c", SCRIPT, "caretaker"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        shell.map(Self).context("can't start sh")
    }

    pub(super) fn minds(&mut self, child: &Child) -> Result<()> {
        let stdin = self.0.stdin.as_mut().context("the caretaker has no stdin")?;
        Ok(writeln!(stdin, "{}", child.id().unwrap_or_default())?)
    }
}

/// The story ends everything itself.
impl Drop for Caretaker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
