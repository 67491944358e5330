//! NATS with JetStream and file storage in a private folder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::found;
use super::postgres::blocking;
use super::service::{Service, freeze, on_a_free_port, signal};

/// Which server to start, and its configuration.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    pub version: NatsVersion,
    /// Additional configuration, as in nats-server.conf: authorization, accounts, tls.
    pub configuration: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NatsVersion {
    /// The pinned version that every test uses.
    #[default]
    Current,
    /// 2.9, the oldest version that works with Pillarbox: the one in Debian 12.
    Old,
}

impl NatsOptions {
    /// Adds this text to its configuration.
    pub fn configured(configuration: impl Into<String>) -> Self {
        Self {
            configuration: configuration.into(),
            ..Self::default()
        }
    }
}

/// A running nats-server, or a stopped one that can come back on the same port with the same streams.
pub struct Nats {
    server: Arc<Mutex<Server>>,
    port: u16,
}

struct Server {
    binary: PathBuf,
    service: Service,
    port: u16,
    configuration: String,
}

impl Nats {
    /// Starts a server with default settings. `None`: it is not installed.
    pub async fn start() -> Option<Self> {
        Self::start_with(NatsOptions::default()).await
    }

    /// Starts a server. `None`: that version is not installed.
    pub async fn start_with(options: NatsOptions) -> Option<Self> {
        let binary = found::nats_server(options.version)?;
        let server = blocking(move || {
            let mut server = Server {
                binary,
                service: Service::new("nats", None, "KILL")?,
                port: 0,
                configuration: options.configuration,
            };
            on_a_free_port(|port| {
                server.port = port;
                server.start()
            })?;
            Ok(server)
        })
        .await;
        Some(Self {
            port: server.port,
            server: Arc::new(Mutex::new(server)),
        })
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A normal shutdown.
    pub async fn stop(&mut self) {
        self.with(|server| server.service.end("TERM")).await;
    }

    /// `kill -9`.
    pub async fn kill(&mut self) {
        self.with(|server| server.service.end("KILL")).await;
    }

    /// After [`stop`](Self::stop) or [`kill`](Self::kill): the same port, the same streams.
    pub async fn start_again(&mut self) {
        self.with(Server::start).await;
    }

    /// The same, but without its streams: as if it had lost its disk.
    pub async fn start_again_empty(&mut self) {
        self.with(|server| {
            fs::remove_dir_all(server.service.folder().join("jetstream"))?;
            server.start()
        })
        .await;
    }

    pub async fn restart(&mut self) {
        self.with(|server| server.service.end("TERM").and_then(|()| server.start()))
            .await;
    }

    /// A normal shutdown, then a start with another configuration.
    pub async fn reconfigure(&mut self, configuration: impl Into<String>) {
        let configuration = configuration.into();
        self.with(|server| {
            server.service.end("TERM")?;
            server.configuration = configuration;
            server.start()
        })
        .await;
    }

    /// Freezes the server: connections stay open, but nothing answers.
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
    fn start(&mut self) -> Result<()> {
        // The name distinguishes our server from another program that took the port first.
        let name = format!("pillarbox-{}", uuid::Uuid::now_v7());
        let file = self.service.folder().join("nats-server.conf");
        fs::write(&file, &self.configuration)?;
        let mut command = self.service.command(&self.binary);
        command.arg("-c").arg(file).args([
            "-js",
            "-a",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-n",
            &name,
            "-sd",
        ]);
        command.arg(self.service.folder());
        let port = self.port;
        self.service.spawn(command)?;
        // The port opens after JetStream has recovered its streams.
        self.service
            .wait_until(|_| greeting(port).is_some_and(|info| info.contains(&name)))
    }
}

/// The first line that a NATS server sends on a connection.
fn greeting(port: u16) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.starts_with("INFO ").then_some(line)
}
