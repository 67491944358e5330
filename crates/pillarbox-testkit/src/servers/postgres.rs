//! PostgreSQL: a private cluster on loopback, with fsync on.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::found;
use super::service::{Account, Service, on_a_free_port, signal};

/// Which server to start, and its settings.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The major version. The default is the value of `PILLARBOX_TEST_POSTGRES`, or 15.
    pub version: u32,
    /// fsync: on by default; a test that never crashes its server may turn it off.
    pub fsync: bool,
    /// Additional settings, as in postgresql.conf.
    pub settings: Vec<(String, String)>,
    /// Files in the data folder: name and content. Only the server can read them, as it demands for a key.
    pub files: Vec<(String, String)>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let version = match std::env::var("PILLARBOX_TEST_POSTGRES") {
            Ok(version) => version.parse().unwrap_or_else(|_| {
                panic!("PILLARBOX_TEST_POSTGRES={version}: a major version like 16 is expected")
            }),
            Err(_) => 15,
        };
        Self {
            version,
            fsync: true,
            settings: Vec::new(),
            files: Vec::new(),
        }
    }
}

impl PostgresOptions {
    /// Adds a setting.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a file to the data folder, for example `pg_hba.conf`.
    #[must_use]
    pub fn file(mut self, name: &str, content: String) -> Self {
        self.files.push((name.to_owned(), content));
        self
    }
}

/// A running PostgreSQL, or a stopped one that can come back on the same port with the same data.
pub struct Postgres {
    cluster: Arc<Mutex<Cluster>>,
    port: u16,
    version: u32,
    databases: AtomicU32,
}

impl Postgres {
    /// Creates a cluster and starts it. `None`: that version is not installed.
    pub async fn start(options: PostgresOptions) -> Option<Self> {
        let bin = found::postgres(options.version)?;
        let version = options.version;
        let (cluster, port) = blocking(move || Cluster::create(bin, &options)).await;
        Some(Self {
            cluster: Arc::new(Mutex::new(cluster)),
            port,
            version,
            databases: AtomicU32::new(0),
        })
    }

    /// The URL of the database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of any database of this server.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The major version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Creates a new, empty database and returns its URL.
    pub async fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let made: Result<(), sqlx::Error> = async {
            let mut connection = PgConnection::connect(&self.url()).await?;
            connection
                .execute(AssertSqlSafe(format!("create database {name}")))
                .await?;
            connection.close().await
        }
        .await;
        made.unwrap_or_else(|error| panic!("cannot create the database {name}: {error}"));
        self.url_of(&name)
    }

    /// A fast shutdown: sessions are cut, transactions are rolled back, everything is written to disk.
    pub async fn stop(&mut self) {
        self.with(|cluster| cluster.service.end("INT")).await;
    }

    /// An immediate shutdown: as after a crash, the next start recovers from the log.
    pub async fn kill(&mut self) {
        self.with(|cluster| cluster.service.end("QUIT")).await;
    }

    /// After [`stop`](Self::stop) or [`kill`](Self::kill): the same port, the same data.
    pub async fn start_again(&mut self) {
        self.with(Cluster::start).await;
    }

    /// A fast shutdown and a start.
    pub async fn restart(&mut self) {
        self.with(|cluster| cluster.service.end("INT").and_then(|()| cluster.start()))
            .await;
    }

    /// Freezes the server with all its sessions: connections stay open, but nothing answers.
    pub async fn pause(&mut self) {
        self.with(|cluster| cluster.signal_all("STOP")).await;
    }

    /// Ends a [`pause`](Self::pause).
    pub async fn resume(&mut self) {
        self.with(|cluster| cluster.signal_all("CONT")).await;
    }

    async fn with(&self, act: impl FnOnce(&mut Cluster) -> Result<()> + Send + 'static) {
        let cluster = Arc::clone(&self.cluster);
        blocking(move || act(&mut cluster.lock().unwrap_or_else(PoisonError::into_inner))).await;
    }
}

/// Runs code that waits for processes on a separate thread, so that the code under test continues meanwhile.
pub(super) async fn blocking<T: Send + 'static>(act: impl FnOnce() -> Result<T> + Send + 'static) -> T {
    match tokio::task::spawn_blocking(act).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => panic!("{error:#}"),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

struct Cluster {
    bin: PathBuf,
    service: Service,
}

impl Cluster {
    fn create(bin: PathBuf, options: &PostgresOptions) -> Result<(Self, u16)> {
        let service = Service::new("postgres", Account::unprivileged()?, "QUIT")?;
        let data = service.folder().join("data");
        let made = service
            .command(bin.join("initdb"))
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .output()
            .with_context(|| format!("cannot run {}", bin.join("initdb").display()))?;
        ensure!(
            made.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&made.stderr)
        );

        for (name, content) in &options.files {
            service.write_private(&data.join(name), content)?;
        }

        let mut cluster = Self { bin, service };
        on_a_free_port(|port| {
            fs::write(
                data.join("postgresql.auto.conf"),
                settings(port, &cluster.service, options),
            )?;
            let _ = fs::remove_file(cluster.service.folder().join("log"));
            cluster.start().map(|()| port)
        })
        .map(|port| (cluster, port))
    }

    fn start(&mut self) -> Result<()> {
        let data = self.service.folder().join("data");
        let mut command = self.service.command(self.bin.join("postgres"));
        command.arg("-D").arg(&data);
        self.service.spawn(command)?;
        self.service.wait_until(|service| {
            // The eighth line of the pid file is the state; the first shows whether this process wrote it.
            let state = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            let mut lines = state.lines().map(str::trim);
            lines.next().and_then(|pid| pid.parse().ok()) == service.pid() && lines.nth(6) == Some("ready")
        })
    }

    /// Each session is its own process group, so look up the postmaster's children.
    fn signal_all(&mut self, name: &str) -> Result<()> {
        let postmaster = self.service.pid().context("the server is stopped")?;
        // The parent first and twice: it must not start a session between the lookup and the signal.
        signal(name, &[postmaster])?;
        for child in children(postmaster)? {
            // A session may end meanwhile.
            let _ = signal(name, &[child]);
        }
        Ok(())
    }
}

fn settings(port: u16, service: &Service, options: &PostgresOptions) -> String {
    let fixed = [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", service.folder().display().to_string()),
        ("fsync", if options.fsync { "on" } else { "off" }.to_owned()),
        ("max_connections", "200".to_owned()),
        ("max_prepared_transactions", "20".to_owned()),
        ("wal_level", "logical".to_owned()),
    ];
    let further = options
        .settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    fixed
        .into_iter()
        .chain(further)
        .map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''")))
        .collect()
}

fn children(parent: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // "pid (name) state ppid …"; the name may contain anything.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        if after_name.split(' ').nth(1).and_then(|ppid| ppid.parse().ok()) == Some(parent) {
            children.push(pid);
        }
    }
    Ok(children)
}
