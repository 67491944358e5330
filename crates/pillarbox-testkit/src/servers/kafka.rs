//! Apache Kafka in KRaft mode: one node that is broker and controller, with its data in a private folder.

mod topics;

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use uuid::Uuid;

use super::cache;
use super::found;
use super::postgres::blocking;
use super::service::{Service, free_port, freeze, on_a_free_port, signal};

/// The settings of a broker.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// The protocol of the clients' listener: `PLAINTEXT`, `SASL_PLAINTEXT`, `SSL` or `SASL_SSL`. The testkit
    /// uses another, plain listener.
    pub protocol: &'static str,
    /// The port that clients should use, if a proxy is in front of the broker.
    pub advertised_port: Option<u16>,
    /// Additional lines for server.properties.
    pub properties: Vec<(String, String)>,
    /// Additional arguments for formatting the storage (`--add-scram …`).
    pub format: Vec<String>,
    /// Tests use the JIT compiler that starts quickly; measurements use the one that produces fast code.
    pub measured: bool,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self {
            protocol: "PLAINTEXT",
            advertised_port: None,
            properties: Vec::new(),
            format: Vec::new(),
            measured: false,
        }
    }
}

impl KafkaOptions {
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.properties.push((name.to_owned(), value.into()));
        self
    }
}

/// A running broker, or a stopped one that can come back on the same port with the same topics.
pub struct Kafka {
    server: Arc<Mutex<Server>>,
    port: u16,
    internal: u16,
}

struct Server {
    java: PathBuf,
    jars: PathBuf,
    service: Service,
    options: KafkaOptions,
    cluster: String,
    port: u16,
    internal: u16,
}

impl Kafka {
    /// The pinned version.
    pub const VERSION: &'static str = cache::KAFKA;

    /// Starts a broker with default settings. `None`: it is not installed.
    pub async fn start() -> Option<Self> {
        Self::start_with(KafkaOptions::default()).await
    }

    pub async fn start_with(options: KafkaOptions) -> Option<Self> {
        let (java, jars) = found::kafka()?;
        let server = blocking(move || {
            on_a_free_port(|port| {
                let mut server = Server {
                    java: java.clone(),
                    jars: jars.clone(),
                    service: Service::new("kafka", None, "KILL")?,
                    options: options.clone(),
                    cluster: cluster_id(),
                    port,
                    internal: free_port(),
                };
                server.format()?;
                server.start()?;
                Ok(server)
            })
        })
        .await;
        Some(Self {
            port: server.port,
            internal: server.internal,
            server: Arc::new(Mutex::new(server)),
        })
    }

    /// The address in Pillarbox's format.
    pub fn url(&self) -> String {
        format!("kafka://{}", self.bootstrap())
    }

    /// The address in the format of Kafka's clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The listener that is always plain.
    pub fn internal(&self) -> String {
        format!("127.0.0.1:{}", self.internal)
    }

    /// A normal shutdown.
    pub async fn stop(&mut self) {
        self.with(|server| server.service.end("TERM")).await;
    }

    /// `kill -9`.
    pub async fn kill(&mut self) {
        self.with(|server| server.service.end("KILL")).await;
    }

    /// After [`stop`](Self::stop) or [`kill`](Self::kill): the same port, the same topics.
    pub async fn start_again(&mut self) {
        self.with(Server::start).await;
    }

    pub async fn restart(&mut self) {
        self.with(|server| server.service.end("TERM").and_then(|()| server.start()))
            .await;
    }

    /// Freezes the broker: connections stay open, but nothing answers.
    pub async fn pause(&mut self) {
        self.with(|server| freeze(&server.service.pid().into_iter().collect::<Vec<_>>()))
            .await;
    }

    /// Ends a [`pause`](Self::pause).
    pub async fn resume(&mut self) {
        self.with(|server| signal("CONT", &server.service.pid().into_iter().collect::<Vec<_>>()))
            .await;
    }

    async fn with(&self, act: impl FnOnce(&mut Server) -> Result<()> + Send + 'static) {
        let server = Arc::clone(&self.server);
        blocking(move || act(&mut server.lock().unwrap_or_else(PoisonError::into_inner))).await;
    }
}

impl Server {
    fn format(&self) -> Result<()> {
        let folder = self.service.folder();
        let controller = free_port();
        let advertised = self.options.advertised_port.unwrap_or(self.port);
        let (port, internal) = (self.port, self.internal);
        let mut lines = vec![
            "process.roles=broker,controller".to_owned(),
            "node.id=1".to_owned(),
            format!("controller.quorum.voters=1@127.0.0.1:{controller}"),
            format!(
                "listeners=CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal},CONTROLLER://127.0.0.1:{controller}"
            ),
            format!("advertised.listeners=CLIENT://127.0.0.1:{advertised},INTERNAL://127.0.0.1:{internal}"),
            "controller.listener.names=CONTROLLER".to_owned(),
            "inter.broker.listener.name=INTERNAL".to_owned(),
            format!(
                "listener.security.protocol.map=CLIENT:{},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
                self.options.protocol
            ),
            format!("log.dirs={}", folder.join("data").display()),
            "offsets.topic.replication.factor=1".to_owned(),
            "offsets.topic.num.partitions=1".to_owned(),
            "transaction.state.log.replication.factor=1".to_owned(),
            "transaction.state.log.min.isr=1".to_owned(),
            "transaction.state.log.num.partitions=1".to_owned(),
            "group.initial.rebalance.delay.ms=0".to_owned(),
            "auto.create.topics.enable=false".to_owned(),
            // The session of a killed broker with its controller: the default of 9 s would delay every
            // restart.
            "broker.session.timeout.ms=3000".to_owned(),
            "broker.heartbeat.interval.ms=500".to_owned(),
        ];
        let further = self.options.properties.iter();
        lines.extend(further.map(|(name, value)| format!("{name}={value}")));
        let properties = folder.join("server.properties");
        fs::write(&properties, lines.join("\n"))?;
        let output = self
            .command()
            .args(["kafka.tools.StorageTool", "format", "-t", &self.cluster, "-c"])
            .arg(&properties)
            .args(&self.options.format)
            .output()
            .context("cannot run java")?;
        ensure!(
            output.status.success(),
            "Kafka's storage can't be formatted: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let mut command = self.command();
        command
            .arg("kafka.Kafka")
            .arg(self.service.folder().join("server.properties"));
        self.service.spawn(command)?;
        let (internal, cluster) = (format!("127.0.0.1:{}", self.internal), self.cluster.clone());
        self.service.wait_until(|_| is_there(&internal, &cluster))
    }

    fn command(&self) -> std::process::Command {
        let mut command = self.service.command(&self.java);
        if self.options.measured {
            command.args(["-Xms1g", "-Xmx1g"]);
        } else {
            command.args(["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        }
        command
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(self.jars.join("*"));
        command
    }
}

/// Whether the broker answers and is ours: another program may have taken the port first.
fn is_there(address: &str, cluster: &str) -> bool {
    let second = Duration::from_secs(1);
    let Ok(client) = client(address).create::<BaseConsumer>() else {
        return false;
    };
    let answers = client
        .fetch_metadata(None, second)
        .is_ok_and(|metadata| !metadata.brokers().is_empty());
    answers && client.client().fetch_cluster_id(second).as_deref() == Some(cluster)
}

fn client(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", address)
        // It prints on stderr at each attempt that nothing answers yet.
        .set("log_level", "2");
    config
}

/// A UUID in Kafka's format.
fn cluster_id() -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    loop {
        let id = URL_SAFE_NO_PAD.encode(Uuid::new_v4());
        // Kafka's own tools treat a leading dash as an option.
        if !id.starts_with('-') {
            return id;
        }
    }
}
