//! Obtains the servers for the tests: already installed, in the cache, from Debian, or downloaded into the
//! cache.
//!
//! Nothing is downloaded twice, and an incomplete download is never used: a download is made in its own
//! folder, tested, and renamed into place.

mod debian;
mod maven;
mod npm;
mod python;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, process};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::cache;
use crate::steps::Steps;

#[derive(Default)]
pub(crate) struct Servers {
    variables: Vec<(String, OsString)>,
}

impl Servers {
    /// The variables that tell the testkit where everything is.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &OsString)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn postgres(&self, major: u32) -> Option<&OsString> {
        self.variable(&format!("PILLARBOX_POSTGRES_{major}"))
    }

    /// Where it is, if it could be obtained.
    pub(crate) fn variable(&self, wanted: &str) -> Option<&OsString> {
        self.variables()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    }

    fn add(&mut self, steps: &mut Steps, what: &str, variable: &str, obtained: Result<PathBuf>) {
        match obtained {
            Ok(path) => self.variables.push((variable.to_owned(), path.into_os_string())),
            Err(error) => {
                eprintln!("SKIPPED: {what} could not be obtained: {error:#}");
                steps.missing(&format!("{what}: {error:#}"));
            }
        }
    }
}

/// What the build of the Kafka client needs besides a C compiler: `make`, and for its OpenSSL a complete
/// Perl. If something is missing, the build fails later; this only gives a clear warning before that.
pub(crate) fn build_tools() {
    let missing = [
        ("make", works("make", &["--version"])),
        (
            "perl",
            works("perl", &["-MIPC::Cmd", "-MFindBin", "-MFile::Compare", "-e", "1"]),
        ),
    ];
    let packages: Vec<_> = missing
        .iter()
        .filter(|(_, there)| !there)
        .map(|(package, _)| *package)
        .collect();
    if !packages.is_empty()
        && let Err(error) = debian::install("the build tools of the Kafka client", &packages)
    {
        eprintln!("warning: the Kafka client can't be built: {error:#}");
    }
}

/// The servers that people may want to run next to Pillarbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Postgres,
    Mongodb,
    Nats,
    Kafka,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Postgres, Self::Mongodb, Self::Nats, Self::Kafka];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mongodb => "mongodb",
            Self::Nats => "nats",
            Self::Kafka => "kafka",
        }
    }
}

/// The dependencies of an example in another language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kit {
    Chat,
    Orders,
}

impl Kit {
    const ALL: [Self; 2] = [Self::Chat, Self::Orders];

    /// The variable with its location.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Chat => "PILLARBOX_CHAT_PYTHON",
            Self::Orders => "PILLARBOX_ORDERS_MODULES",
        }
    }

    pub(crate) fn add(self, steps: &mut Steps, servers: &mut Servers) {
        let (what, obtained) = match self {
            Self::Chat => ("the environment of the example chat", python::chat()),
            Self::Orders => ("the environment of the example orders", npm::orders()),
        };
        servers.add(steps, what, self.variable(), obtained);
    }
}

/// Everything the tests use.
pub(crate) fn all(steps: &mut Steps) -> Servers {
    build_tools();
    let mut servers = for_running(steps, &Kind::ALL);
    servers.add(steps, "PgBouncer", "PILLARBOX_PGBOUNCER", debian::pgbouncer());
    servers.add(
        steps,
        &format!("nats-server {}", cache::NATS_SERVER_OLD),
        "PILLARBOX_NATS_SERVER_OLD",
        debian::old_nats_server(),
    );
    servers.add(steps, "libfaketime", "PILLARBOX_FAKETIME", debian::faketime());
    servers.add(steps, "Prometheus", "PILLARBOX_PROMETHEUS", debian::prometheus());
    servers.add(
        steps,
        "nats-py",
        "PILLARBOX_PYTHON",
        python::environment().map(|_| cache::python()),
    );
    servers.add(
        steps,
        "standardwebhooks",
        "PILLARBOX_WEBHOOKS_PYTHON",
        python::webhooks(),
    );
    servers.add(
        steps,
        "schemathesis",
        "PILLARBOX_SCHEMATHESIS_PYTHON",
        python::schemathesis(),
    );
    servers.add(
        steps,
        "confluent-kafka",
        "PILLARBOX_KAFKA_PYTHON",
        python::kafka_client(),
    );
    servers.add(steps, "Chromium", "PILLARBOX_CHROMIUM", debian::chromium());
    servers.add(
        steps,
        "playwright",
        "PILLARBOX_BROWSER_PYTHON",
        python::playwright(),
    );
    for example in Kit::ALL {
        example.add(steps, &mut servers);
    }
    for (major, version) in cache::POSTGRES {
        let name = format!("PILLARBOX_POSTGRES_{major}");
        servers.add(
            steps,
            &format!("PostgreSQL {major}"),
            &name,
            npm::postgres(major, version),
        );
    }
    servers
}

/// One of each named kind.
pub(crate) fn for_running(steps: &mut Steps, kinds: &[Kind]) -> Servers {
    let mut servers = Servers::default();
    for kind in kinds {
        match kind {
            Kind::Postgres => servers.add(
                steps,
                "PostgreSQL 15",
                "PILLARBOX_POSTGRES_15",
                debian::postgres(),
            ),
            Kind::Nats => {
                let nats = python::environment().map(|_| cache::nats_server());
                servers.add(steps, "nats-server", "PILLARBOX_NATS_SERVER", nats);
            }
            Kind::Kafka => {
                let what = format!("Kafka {}", cache::KAFKA);
                servers.add(steps, &what, "PILLARBOX_KAFKA", maven::kafka());
            }
            Kind::Mongodb => servers.add(steps, "mongod", "PILLARBOX_MONGOD", python::mongod()),
        }
    }
    servers
}

/// Fills `target` by `make`, which gets an empty folder next to it and returns which of its contents becomes
/// the target.
fn into_cache(target: &Path, make: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<()> {
    let cache = cache::folder();
    let beside = cache.join(format!(".obtaining-{}", process::id()));
    fs::create_dir_all(&beside).with_context(|| format!("cannot create {}", beside.display()))?;
    let done = make(&beside).and_then(|made| {
        // If we are root, PostgreSQL runs as another user.
        run(Command::new("chmod").arg("-R").arg("a+rX").arg(&made))?;
        run(Command::new("chmod").arg("a+rx").arg(&cache))?;
        match fs::rename(&made, target) {
            // Another process was faster; its result is just as good.
            Err(_) if target.exists() => Ok(()),
            other => other.with_context(|| format!("cannot move {} into place", target.display())),
        }
    });
    let _ = fs::remove_dir_all(&beside);
    done
}

/// Runs a command quietly; its output is part of the error.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let end = said
        .trim()
        .lines()
        .rev()
        .take(5)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect::<Vec<_>>()
        .join("\n");
    ensure!(
        output.status.success(),
        "{name} failed ({}): {end}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn works(program: &str, arguments: &[&str]) -> bool {
    run(Command::new(program).args(arguments)).is_ok()
}

fn progress(what: &str) {
    eprintln!("obtaining {what}");
}
