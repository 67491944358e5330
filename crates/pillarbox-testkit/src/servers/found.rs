//! Finds a server's binary: named by the environment, in the cache, or installed on the machine. Also the
//! message if it is missing.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::cache;
use super::nats::NatsVersion;

/// The variable with the path of a Python that has nats-py.
pub const PYTHON: &str = "PILLARBOX_PYTHON";

/// The folder with `initdb` and `postgres` of that major version.
pub(super) fn postgres(major: u32) -> Option<PathBuf> {
    let complete = |bin: &PathBuf| bin.join("initdb").is_file() && bin.join("postgres").is_file();
    let installed = PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"));
    [
        named(&format!("PILLARBOX_POSTGRES_{major}")),
        cache::postgres_bin(major),
        Some(installed),
    ]
    .into_iter()
    .flatten()
    .find(complete)
    .or_else(|| skip(&format!("PostgreSQL {major}")))
}

pub(super) fn nats_server(version: NatsVersion) -> Option<PathBuf> {
    match version {
        NatsVersion::Current => {
            executable("PILLARBOX_NATS_SERVER", Some(cache::nats_server()), "nats-server")
                .or_else(|| skip("nats-server"))
        }
        // Other installations on the machine may have any version.
        NatsVersion::Old => [named("PILLARBOX_NATS_SERVER_OLD"), Some(cache::old_nats_server())]
            .into_iter()
            .flatten()
            .find(|path| path.is_file())
            .or_else(|| skip(&format!("nats-server {}", cache::NATS_SERVER_OLD))),
    }
}

/// Java, and the folder with Kafka's jars.
pub(super) fn kafka() -> Option<(PathBuf, PathBuf)> {
    let jars = [named("PILLARBOX_KAFKA"), Some(cache::kafka())]
        .into_iter()
        .flatten()
        .find(|folder| folder.is_dir())
        .or_else(|| skip("Kafka"))?;
    let java = executable("PILLARBOX_JAVA", None, "java").or_else(|| skip("Java"))?;
    Some((java, jars))
}

pub(super) fn mongod() -> Option<PathBuf> {
    executable("PILLARBOX_MONGOD", Some(cache::mongod()), "mongod").or_else(|| skip("mongod"))
}

pub(super) fn pgbouncer() -> Option<PathBuf> {
    executable(
        "PILLARBOX_PGBOUNCER",
        Some(PathBuf::from("/usr/sbin/pgbouncer")),
        "pgbouncer",
    )
    .or_else(|| skip("PgBouncer"))
}

/// A Python interpreter that can import nats-py.
pub fn python() -> Option<PathBuf> {
    [named(PYTHON), Some(cache::python())]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .or_else(|| skip("nats-py"))
}

/// A Python interpreter that can import confluent-kafka.
pub fn kafka_python() -> Option<PathBuf> {
    [named("PILLARBOX_KAFKA_PYTHON"), Some(cache::kafka_python())]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .or_else(|| skip("confluent-kafka"))
}

/// A Python interpreter that can import the reference implementation of Standard Webhooks.
pub fn webhooks_python() -> Option<PathBuf> {
    [named("PILLARBOX_WEBHOOKS_PYTHON"), Some(cache::webhooks_python())]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .or_else(|| skip("standardwebhooks"))
}

/// A Python interpreter that can run schemathesis.
pub fn schemathesis_python() -> Option<PathBuf> {
    [
        named("PILLARBOX_SCHEMATHESIS_PYTHON"),
        Some(cache::schemathesis_python()),
    ]
    .into_iter()
    .flatten()
    .find(|path| path.is_file())
    .or_else(|| skip("schemathesis"))
}

/// A Python interpreter that can import what the example `chat` needs.
pub fn chat_python() -> Option<PathBuf> {
    [named("PILLARBOX_CHAT_PYTHON"), Some(cache::chat_python())]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .or_else(|| skip("the environment of the example chat"))
}

/// Chromium, and a Python interpreter that can drive it.
pub fn browser() -> Option<(PathBuf, PathBuf)> {
    let python = [
        named("PILLARBOX_BROWSER_PYTHON"),
        Some(cache::playwright_python()),
    ]
    .into_iter()
    .flatten()
    .find(|path| path.is_file())
    .or_else(|| skip("playwright"))?;
    let chromium = executable("PILLARBOX_CHROMIUM", None, "chromium").or_else(|| skip("Chromium"))?;
    Some((chromium, python))
}

/// Node, and the `node_modules` of the example `orders`.
pub fn orders_node() -> Option<(PathBuf, PathBuf)> {
    let modules = [named("PILLARBOX_ORDERS_MODULES"), Some(cache::orders_modules())]
        .into_iter()
        .flatten()
        .find(|folder| folder.is_dir())
        .or_else(|| skip("the environment of the example orders"))?;
    let node = executable("PILLARBOX_NODE", None, "node").or_else(|| skip("Node"))?;
    Some((node, modules))
}

/// The library that gives a process its own clock.
pub fn faketime() -> Option<PathBuf> {
    [named("PILLARBOX_FAKETIME"), Some(cache::faketime())]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .or_else(|| skip("libfaketime"))
}

/// The folder with `prometheus` and `promtool`.
pub fn prometheus() -> Option<PathBuf> {
    [named("PILLARBOX_PROMETHEUS"), Some(cache::prometheus())]
        .into_iter()
        .flatten()
        .find(|folder| folder.join("promtool").is_file())
        .or_else(|| skip("Prometheus"))
}

fn executable(variable: &str, usual: Option<PathBuf>, program: &str) -> Option<PathBuf> {
    let on_path = env::var_os("PATH")
        .map(|path| {
            env::split_paths(&path)
                .map(|folder| folder.join(program))
                .collect::<Vec<_>>()
        })
        .unwrap_or_default();
    named(variable)
        .into_iter()
        .chain(usual)
        .chain(on_path)
        .find(|path| path.is_file())
}

fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Reports that a test can't run because `what` is missing, and returns `None`.
///
/// # Panics
/// With `CI=true`: there, a missing server is a failure.
pub fn skip<T>(what: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line =
        format!("SKIPPED: {test}: {what} is not installed (run cargo xtask test, which installs it)\n");
    if env::var("CI").is_ok_and(|ci| ci == "true") {
        panic!("{}", line.trim_end());
    }
    told(&line);
    None
}

/// Reports that a test can't run because this machine has no `what` and no package would provide it, and
/// returns `None`. This is not a failure even with `CI=true`.
pub fn lacking<T>(what: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    told(&format!("SKIPPED: {test}: this machine has no {what}\n"));
    None
}

fn told(line: &str) {
    // Written past the test harness's capture, which hides the output of passing tests.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = named("PILLARBOX_SKIPS") {
        note(&file, line);
    }
}

fn note(file: &Path, line: &str) {
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot note a skip in {}: {error}", file.display());
    }
}
