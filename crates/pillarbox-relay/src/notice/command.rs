//! Runs any program that reads a notice from its stdin.

use std::{process::Stdio, time::Duration};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{Channel, ChannelError, NoticeError, channel::key};

/// How much of the program's stderr is kept, and how much of the last line is reported.
const STDERR_BYTES_MAX: usize = 4 * 1024;
const LINE_CHARS_MAX: usize = 200;
/// A child that the program left behind may keep stderr open, so the wait is limited.
const STDERR_WAIT: Duration = Duration::from_millis(500);

pub struct CommandChannel {
    key: String,
    program: String,
    arguments: Vec<String>,
    timeout: Duration,
}

impl CommandChannel {
    pub fn open(command: &[String], timeout: Duration) -> Result<Self, NoticeError> {
        let (program, arguments) = command.split_first().ok_or(NoticeError::NoProgram)?;
        Ok(Self {
            key: key("command", &command.join("\0")),
            program: program.clone(),
            arguments: arguments.to_vec(),
            timeout,
        })
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Its own process group, so that its children can be killed with it.
            .process_group(0)
            .kill_on_drop(true);
        // Environment variables may contain the configuration, with passwords and secrets.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PILLARBOX_") {
                command.env_remove(name);
            }
        }
        command.spawn()
    }
}

#[async_trait]
impl Channel for CommandChannel {
    fn key(&self) -> &str {
        &self.key
    }

    /// The arguments may contain a secret.
    fn name(&self) -> String {
        format!("command {}", self.program)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn tell(&self, _: Uuid, body: &str) -> Result<(), ChannelError> {
        let mut child = self
            .spawn()
            .map_err(|error| ChannelError::Retry(format!("it can't be started: {error}")))?;
        let mut group = Group::of(&child);
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        // Ends together with `tell`: a child that the program leaves behind may keep its stderr open.
        let said = AbortOnDropHandle::new(tokio::spawn(async move {
            match stderr {
                Some(stderr) => last_line(stderr).await,
                None => String::new(),
            }
        }));
        let ended = timeout(self.timeout, async {
            if let Some(mut stdin) = stdin {
                // A program that does not read everything may still succeed: its exit code decides.
                let _ = stdin.write_all(body.as_bytes()).await;
            }
            child.wait().await
        })
        .await;
        let why = match ended {
            Ok(Ok(status)) if status.success() => {
                group.leave();
                return Ok(());
            }
            Ok(Ok(status)) => {
                group.leave();
                format!("it ended with {status}")
            }
            Ok(Err(error)) => format!("waiting for it failed: {error}"),
            Err(_) => {
                group.kill();
                let _ = child.kill().await;
                format!(
                    "it did not end within {:.1} s and was killed",
                    self.timeout.as_secs_f64()
                )
            }
        };
        let said = timeout(STDERR_WAIT, said).await;
        let said = said.ok().and_then(Result::ok).unwrap_or_default();
        Err(ChannelError::Retry(match said.is_empty() {
            true => why,
            false => format!("{why}: {said}"),
        }))
    }
}

/// The processes of a program that has not ended. Dropping this kills them, also when the relay stops meanwhile.
/// Processes that a program leaves behind when it ends by itself are not killed.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    fn leave(&mut self) {
        self.0 = None;
    }

    /// The first process has not been waited for yet, so no other group can have its number.
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last line that is not empty, cut to the limit.
async fn last_line(mut from: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        kept.extend_from_slice(&piece[..read]);
        let excess = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..excess);
    }
    let text = String::from_utf8_lossy(&kept);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let plain = line.unwrap_or_default().chars().filter(|c| !c.is_control());
    plain.take(LINE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
