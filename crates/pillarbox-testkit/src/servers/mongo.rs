//! MongoDB as a replica set, of one member by default, with test commands enabled (`failCommand`).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use mongodb::{
    Client,
    bson::{Bson, Document, doc},
    error::ErrorKind,
    options::{ClientOptions, ServerAddress},
};

use tempfile::TempDir;

use super::found;
use super::postgres::blocking;
use super::service::{Service, freeze, on_a_free_port, signal};
use crate::wait;

const SET: &str = "rs0";
const KEY: &str = "key";
const ROOTS_PASSWORD: &str = "roots-own";
const UNAUTHORIZED: i32 = 13;
/// The timeout of an election on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// The members of the replica set; 0 means a standalone server.
    pub members: usize,
    /// Additional arguments for every mongod.
    pub arguments: Vec<String>,
    /// The cache size of each member.
    pub cache_gigabytes: f64,
    /// Requires accounts (for a replica set only). The addresses contain that of `root`, who may do
    /// everything.
    pub accounts: bool,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            members: 1,
            arguments: Vec::new(),
            cache_gigabytes: 0.25,
            accounts: false,
        }
    }
}

/// A running replica set. Members are numbered from 0.
pub struct Mongo {
    members: Vec<Arc<Mutex<Member>>>,
    ports: Vec<u16>,
    replica_set: bool,
    /// The members' shared key, if there are accounts.
    key: Option<TempDir>,
    databases: AtomicU32,
}

struct Member {
    binary: PathBuf,
    service: Service,
    port: u16,
    arguments: Vec<String>,
}

impl Mongo {
    /// Starts a set of one member. `None`: mongod is not installed.
    pub async fn start() -> Option<Self> {
        Self::start_with(MongoOptions::default()).await
    }

    pub async fn start_with(options: MongoOptions) -> Option<Self> {
        let binary = found::mongod()?;
        let replica_set = options.members > 0;
        let mut arguments = options.arguments.clone();
        arguments.push(format!("--wiredTigerCacheSizeGB={}", options.cache_gigabytes));
        if replica_set {
            arguments.push(format!("--replSet={SET}"));
        }
        let key = options
            .accounts
            .then(|| key().expect("a key for the replica set"));
        if let Some(key) = &key {
            arguments.push(format!("--keyFile={}", key.path().join(KEY).display()));
        }
        let members = blocking(move || {
            (0..options.members.max(1))
                .map(|_| Member::create(&binary, &arguments))
                .collect::<Result<Vec<_>>>()
        })
        .await;
        let set = Self {
            ports: members.iter().map(|member| member.port).collect(),
            members: members
                .into_iter()
                .map(|member| Arc::new(Mutex::new(member)))
                .collect(),
            replica_set,
            key,
            databases: AtomicU32::new(0),
        };
        if replica_set {
            set.initiate().await;
        }
        if options.accounts {
            set.make_root().await;
        }
        Some(set)
    }

    /// The URL of a database that nothing else in this process uses.
    pub fn database(&self) -> String {
        let n = self.databases.fetch_add(1, Ordering::Relaxed);
        self.url_of(&format!("test{n}"))
    }

    pub fn url_of(&self, database: &str) -> String {
        match self.key {
            Some(_) => self.url_as("root", ROOTS_PASSWORD, database),
            None => self.url("", database, ""),
        }
    }

    /// The URL with this user and password, which must be percent-encoded already.
    pub fn url_as(&self, user: &str, password: &str, database: &str) -> String {
        self.url(&format!("{user}:{password}@"), database, "&authSource=admin")
    }

    fn url(&self, user: &str, database: &str, more: &str) -> String {
        let hosts: Vec<_> = self
            .ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let set = if self.replica_set {
            format!("?replicaSet={SET}{more}")
        } else {
            String::new()
        };
        format!("mongodb://{user}{}/{database}{set}", hosts.join(","))
    }

    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// A client of this member alone, whichever member is the primary.
    pub fn direct(&self, member: usize) -> Client {
        direct(self.ports[member])
    }

    /// The number of the primary; waits for one.
    pub async fn primary(&self) -> usize {
        wait::until_ok_within(PATIENCE, async || {
            for member in 0..self.ports.len() {
                let admin = self.direct(member).database("admin");
                let hello = admin.run_command(doc! {"hello": 1}).into_future();
                let answer = tokio::time::timeout(Duration::from_secs(2), hello).await;
                if answer.is_ok_and(|hello| hello.is_ok_and(|hello| is_primary(&hello))) {
                    return Ok(member);
                }
            }
            Err("no member is the primary")
        })
        .await
    }

    pub async fn stop(&mut self, member: usize) {
        self.with(member, |member| member.service.end("TERM")).await;
    }

    /// `kill -9`.
    pub async fn kill(&mut self, member: usize) {
        self.with(member, |member| member.service.end("KILL")).await;
    }

    /// After [`stop`](Self::stop) or [`kill`](Self::kill): the same port, the same data. Waits until there is
    /// a primary.
    pub async fn start_again(&mut self, member: usize) {
        self.with(member, Member::start).await;
        self.primary().await;
    }

    /// Freezes a member: connections stay open, but nothing answers.
    pub async fn pause(&mut self, member: usize) {
        self.with(member, |member| {
            freeze(&member.service.pid().into_iter().collect::<Vec<_>>())
        })
        .await;
    }

    /// Ends a [`pause`](Self::pause).
    pub async fn resume(&mut self, member: usize) {
        self.with(member, |member| {
            signal("CONT", &member.service.pid().into_iter().collect::<Vec<_>>())
        })
        .await;
    }

    async fn initiate(&self) {
        let members: Vec<Bson> = self
            .ports
            .iter()
            .zip(0..)
            .map(|(port, n): (_, i32)| doc! {"_id": n, "host": format!("127.0.0.1:{port}")}.into())
            .collect();
        // A short timeout, so that an election after a kill does not take the default ten seconds.
        let config = doc! {"_id": SET, "members": members, "settings": {"electionTimeoutMillis": 2000}};
        self.direct(0)
            .database("admin")
            .run_command(doc! {"replSetInitiate": config})
            .await
            .expect("a new replica set");
        self.primary().await;
    }

    /// While there is no account, any client from this machine may create the first one.
    async fn make_root(&self) {
        let root = doc! { "createUser": "root", "pwd": ROOTS_PASSWORD, "roles": ["root"] };
        let primary = self.direct(self.primary().await);
        let made = primary.database("admin").run_command(root).await;
        made.expect("an account for root");
    }

    async fn with(&self, member: usize, act: impl FnOnce(&mut Member) -> Result<()> + Send + 'static) {
        let member = Arc::clone(&self.members[member]);
        blocking(move || act(&mut member.lock().unwrap_or_else(PoisonError::into_inner))).await;
    }
}

impl Member {
    fn create(binary: &Path, arguments: &[String]) -> Result<Self> {
        on_a_free_port(|port| {
            let mut member = Self {
                binary: binary.to_owned(),
                service: Service::new("mongod", None, "KILL")?,
                port,
                arguments: arguments.to_vec(),
            };
            member.start()?;
            Ok(member)
        })
    }

    fn start(&mut self) -> Result<()> {
        let mut command = self.service.command(&self.binary);
        command
            .arg("--dbpath")
            .arg(self.service.folder())
            .args(["--port", &self.port.to_string()])
            .args(["--bind_ip", "127.0.0.1", "--nounixsocket"])
            .args(["--setParameter", "enableTestCommands=1"])
            .args(&self.arguments);
        let port = self.port;
        let folder = self.service.folder().display().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("a runtime")?;
        self.service.spawn(command)?;
        self.service
            .wait_until(|_| runtime.block_on(is_there(port, &folder)))
    }
}

/// In its own folder: mongod refuses a key that others may read.
fn key() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(KEY);
    std::fs::write(&path, "a key that only these members know")?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(folder)
}

/// Whether the server answers and is ours: another program may have taken the port first.
async fn is_there(port: u16, folder: &str) -> bool {
    let admin = direct(port).database("admin");
    let asked = admin.run_command(doc! {"getCmdLineOpts": 1}).into_future();
    match tokio::time::timeout(Duration::from_secs(2), asked).await {
        Ok(Ok(answer)) => answer
            .get_document("parsed")
            .and_then(|parsed| parsed.get_document("storage"))
            .and_then(|storage| storage.get_str("dbPath"))
            .is_ok_and(|path| path == folder),
        // It requires accounts, and answers nothing before there is one.
        Ok(Err(error)) => matches!(&*error.kind, ErrorKind::Command(refusal) if refusal.code == UNAUTHORIZED),
        Err(_) => false,
    }
}

fn direct(port: u16) -> Client {
    let mut options = ClientOptions::default();
    options.hosts = vec![ServerAddress::Tcp {
        host: "127.0.0.1".into(),
        port: Some(port),
    }];
    options.direct_connection = Some(true);
    options.server_selection_timeout = Some(Duration::from_secs(2));
    Client::with_options(options).expect("a client")
}

fn is_primary(hello: &Document) -> bool {
    hello.get_bool("isWritablePrimary").unwrap_or(false)
}
