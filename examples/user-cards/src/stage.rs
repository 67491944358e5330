//! The processes of the story: the service, Pillarbox, the projection. Each can be killed and restarted.

mod call;
mod caretaker;

use std::{
    fs::File,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use self::caretaker::Caretaker;
use crate::{Broker, Database};

const PATIENCE: Duration = Duration::from_secs(30);
const CONFIGURATION: &str = include_str!("../pillarbox.yaml");

pub(crate) struct Stage {
    database: Database,
    broker: Broker,
    pillarbox: PathBuf,
    /// The folder of the configuration and the logs.
    folder: TempDir,
    relay_port: u16,
    service_url: String,
    service: Option<Child>,
    relay: Option<Child>,
    projection: Option<Child>,
    caretaker: Caretaker,
}

impl Stage {
    /// Nothing runs yet.
    pub(crate) fn new(database: &Database, broker: &Broker, pillarbox: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("user-cards-").tempdir()?;
        std::fs::write(folder.path().join("pillarbox.yaml"), CONFIGURATION)?;
        let caretaker = Caretaker::start(folder.path())?;
        Ok(Self {
            database: database.clone(),
            broker: broker.clone(),
            pillarbox: pillarbox.to_owned(),
            folder,
            relay_port: TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port(),
            service_url: String::new(),
            service: None,
            relay: None,
            projection: None,
            caretaker,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn relay_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.relay_port)
    }

    pub(crate) fn service_url(&self) -> &str {
        &self.service_url
    }

    /// The output of a `pillarbox` command.
    pub(crate) async fn pillarbox(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(&self.pillarbox).args(arguments).output().await;
        let output = output.with_context(|| format!("can't run {}", self.pillarbox.display()))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        ensure!(
            output.status.success(),
            "pillarbox {} says: {}",
            arguments.join(" "),
            said(&output.stderr)
        );
        Ok([said(&output.stdout), said(&output.stderr)].join("\n"))
    }

    pub(crate) async fn start_service(&mut self) -> Result<()> {
        let mut command = self.command(&std::env::current_exe()?);
        command
            .arg("serve")
            .stdout(Stdio::piped())
            .stderr(self.log("service")?);
        let mut service = command.spawn().context("can't start the service")?;
        self.caretaker.minds(&service)?;
        let stdout = service.stdout.take().context("the service has no stdout")?;
        let first = timeout(PATIENCE, BufReader::new(stdout).lines().next_line()).await;
        match first.context("the service does not start")?? {
            Some(url) => self.service_url = url,
            None => bail!("the service ended at once: see {}", self.folder().display()),
        }
        self.service = Some(service);
        Ok(())
    }

    pub(crate) fn start_relay(&mut self) -> Result<()> {
        let mut command = self.command(&self.pillarbox);
        let listen = format!("127.0.0.1:{}", self.relay_port);
        command.args(["run", "--listen", &listen]).stdout(Stdio::null());
        command.stderr(self.log("pillarbox")?);
        let relay = command.spawn().context("can't start pillarbox")?;
        self.caretaker.minds(&relay)?;
        self.relay = Some(relay);
        Ok(())
    }

    pub(crate) fn start_projection(&mut self) -> Result<()> {
        let mut command = self.command(&std::env::current_exe()?);
        command
            .arg("project")
            .stdout(Stdio::null())
            .stderr(self.log("projection")?);
        let projection = command.spawn().context("can't start the projection")?;
        self.caretaker.minds(&projection)?;
        self.projection = Some(projection);
        Ok(())
    }

    /// `kill -9`.
    pub(crate) async fn kill_relay(&mut self) -> Result<()> {
        kill(self.relay.take()).await
    }

    /// `kill -9`.
    pub(crate) async fn kill_projection(&mut self) -> Result<()> {
        kill(self.projection.take()).await
    }

    /// Whether every started process still runs.
    pub(crate) fn check(&mut self) -> Result<()> {
        let folder = self.folder.path().to_owned();
        let parts = [
            ("the service", &mut self.service),
            ("pillarbox", &mut self.relay),
            ("the projection", &mut self.projection),
        ];
        for (name, part) in parts {
            if let Some(status) = part.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("{name} ended ({status}): {}", last_words(&folder));
            }
        }
        Ok(())
    }

    /// The service's answer.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let answer = call::json(&self.service_url, method, path, body);
        timeout(PATIENCE, answer)
            .await
            .context("the service does not answer")?
    }

    /// Ends everything; the relay stops normally.
    pub(crate) async fn end(&mut self) -> Result<()> {
        for part in [self.relay.take(), self.projection.take(), self.service.take()] {
            kill(part).await?;
        }
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("PILLARBOX_OUTBOX__DATABASE__URL", &self.database.mongodb)
            .env("PILLARBOX_OUTBOX__SINKS__EVENTS__URL", &self.broker.kafka)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn log(&self, name: &str) -> Result<File> {
        let path = self.folder.path().join(format!("{name}.log"));
        let mut log = File::options().create(true).append(true).open(path)?;
        writeln!(log, "-- starting")?;
        Ok(log)
    }
}

async fn kill(child: Option<Child>) -> Result<()> {
    if let Some(mut child) = child {
        child.kill().await?;
    }
    Ok(())
}

/// The last lines of the logs.
fn last_words(folder: &Path) -> String {
    const LINES: usize = 5;
    let mut words = String::new();
    for name in ["service", "pillarbox", "projection"] {
        let log = std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            words.push_str(&format!("\n  {name}: {line}"));
        }
    }
    words
}
