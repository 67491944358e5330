//! Relays run as separate processes, so that their use of resources can be measured separately.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    sync::mpsc,
    task::JoinHandle,
};

use super::{Host, arena::Arena};

/// How long relays may take to finish the events in flight.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Relays {
    running: Vec<Running>,
    _configuration: NamedTempFile,
}

struct Running {
    child: Child,
    last_line: JoinHandle<Option<String>>,
    complaints: JoinHandle<String>,
}

/// How relays differ from the plain ones.
pub(super) struct Setup {
    /// More groups of the configuration, below `outbox`.
    pub(super) groups: Map<String, Value>,
    pub(super) log: &'static [&'static str],
    pub(super) run: &'static [&'static str],
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            groups: Map::new(),
            log: &["--log", "warn"],
            run: &["run", "--no-http"],
        }
    }
}

impl Setup {
    pub(super) fn with(group: &str, value: Value) -> Self {
        Self {
            groups: Map::from_iter([(group.to_owned(), value)]),
            ..Self::default()
        }
    }
}

/// The relays' closing summaries, added up.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Summary {
    pub(super) statements: u64,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) peak_bytes: Option<u64>,
}

impl Relays {
    /// Starts the relays. The lines of a stdout sink go to `lines`.
    pub(super) fn start(
        arena: &Arena,
        count: usize,
        lines: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Self> {
        Self::start_with(arena, count, lines, &Setup::default())
    }

    pub(super) fn start_with(
        arena: &Arena,
        count: usize,
        lines: Option<mpsc::UnboundedSender<String>>,
        setup: &Setup,
    ) -> Result<Self> {
        let configuration = arena.configuration(&setup.groups)?;
        let program = std::env::current_exe().context("can't find this program to start relays")?;
        let mut running = Vec::new();
        for _ in 0..count {
            let mut command = Command::new(&program);
            for (name, _) in std::env::vars_os() {
                // The user's own configuration must not influence the measurement.
                if name.to_string_lossy().starts_with("PILLARBOX_OUTBOX__") {
                    command.env_remove(name);
                }
            }
            let mut child = command
                .arg("--json")
                .args(setup.log)
                .arg("--config")
                .arg(configuration.path())
                .args(setup.run)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let stdout = child.stdout.take().context("a relay's stdout")?;
            let mut stderr = child.stderr.take().context("a relay's stderr")?;
            running.push(Running {
                child,
                last_line: tokio::spawn(read_lines(stdout, lines.clone())),
                complaints: tokio::spawn(async move {
                    let mut text = String::new();
                    let _ = stderr.read_to_string(&mut text).await;
                    text
                }),
            });
        }
        Ok(Self {
            running,
            _configuration: configuration,
        })
    }

    /// Returns an error if a relay has ended by itself.
    pub(super) async fn check(&mut self) -> Result<()> {
        for relay in &mut self.running {
            if let Some(status) = relay.child.try_wait()? {
                let complaints = (&mut relay.complaints).await.unwrap_or_default();
                bail!("a relay ended by itself ({status}): {}", complaints.trim());
            }
        }
        Ok(())
    }

    pub(super) fn cpu_seconds(&self, host: &dyn Host) -> Option<f64> {
        let of = |relay: &Running| relay.child.id().and_then(|pid| host.cpu_seconds_of(pid));
        self.running.iter().map(of).sum()
    }

    /// Asks the relays to stop and adds up what they used.
    pub(super) async fn stop(self) -> Result<Summary> {
        for relay in &self.running {
            if let Some(pid) = relay.child.id() {
                // The shell's own `kill`: not every machine has a program of that name.
                let status = Command::new("sh")
                    .args(["-c", r#"kill -s TERM "$1""#, "sh", &pid.to_string()])
                    .status()
                    .await?;
                if !status.success() {
                    bail!("can't ask relay {pid} to stop");
                }
            }
        }
        let mut total = Summary::default();
        for mut relay in self.running {
            let status = tokio::time::timeout(STOP_PATIENCE, relay.child.wait())
                .await
                .context("a relay did not stop")??;
            let complaints = relay.complaints.await.unwrap_or_default();
            if !status.success() {
                bail!("a relay failed ({status}): {}", complaints.trim());
            }
            let line = relay
                .last_line
                .await?
                .context("a relay ended without its summary")?;
            let summary: Summary =
                serde_json::from_str(&line).context("the summary of a relay can't be read")?;
            total.statements += summary.statements;
            total.cpu_seconds = Some(total.cpu_seconds.unwrap_or(0.0) + summary.cpu_seconds.unwrap_or(0.0));
            total.peak_bytes = total.peak_bytes.max(summary.peak_bytes);
        }
        Ok(total)
    }
}

/// Passes lines on as they come. The last one is the relay's closing summary.
async fn read_lines(
    stdout: impl tokio::io::AsyncRead + Unpin,
    lines: Option<mpsc::UnboundedSender<String>>,
) -> Option<String> {
    let mut reader = BufReader::new(stdout).lines();
    let mut last = None;
    while let Ok(Some(line)) = reader.next_line().await {
        if let Some(lines) = &lines {
            let _ = lines.send(line.clone());
        }
        last = Some(line);
    }
    last
}
