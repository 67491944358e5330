//! Packages of Debian: PostgreSQL 15, PgBouncer, Chromium, an old nats-server, libfaketime, Prometheus, and the
//! tools that the downloads need.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

use super::{into_cache, progress, run, works};
use crate::cache;

pub(super) fn postgres() -> Result<PathBuf> {
    let bin = PathBuf::from("/usr/lib/postgresql/15/bin");
    if !bin.join("initdb").is_file() {
        install("PostgreSQL 15", &["postgresql-15"])?;
    }
    ensure!(
        bin.join("initdb").is_file(),
        "there is no {}",
        bin.join("initdb").display()
    );
    Ok(bin)
}

pub(super) fn pgbouncer() -> Result<PathBuf> {
    let path = PathBuf::from("/usr/sbin/pgbouncer");
    if !path.is_file() {
        install("PgBouncer", &["pgbouncer"])?;
    }
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(path)
}

pub(super) fn chromium() -> Result<PathBuf> {
    let path = PathBuf::from("/usr/bin/chromium");
    if !path.is_file() {
        install("Chromium", &["chromium"])?;
    }
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(path)
}

/// Unpacked into the cache, not installed: this needs no root, and no service of that name starts with the
/// machine.
pub(super) fn old_nats_server() -> Result<PathBuf> {
    let (binary, version) = (cache::old_nats_server(), cache::NATS_SERVER_OLD);
    if !binary.is_file() {
        let variable = "PILLARBOX_NATS_SERVER_OLD";
        unpack(
            "nats-server",
            version,
            variable,
            &cache::old_nats_package(),
            |unpacked| {
                let says = run(Command::new(unpacked.join("usr/sbin/nats-server")).arg("--version"))?;
                ensure!(
                    says.contains(&format!("v{version}")),
                    "it says it is {}",
                    says.trim()
                );
                Ok(())
            },
        )?;
    }
    Ok(binary)
}

/// Unpacked as well: it is a library that tests preload by its path.
pub(super) fn faketime() -> Result<PathBuf> {
    let library = cache::faketime();
    if !library.is_file() {
        let (version, folder) = (cache::FAKETIME, cache::faketime_package());
        unpack("libfaketime", version, "PILLARBOX_FAKETIME", &folder, |_| Ok(()))?;
        ensure!(library.is_file(), "there is no {}", library.display());
    }
    Ok(library)
}

/// Unpacked as well: the folder with `prometheus` and `promtool`.
pub(super) fn prometheus() -> Result<PathBuf> {
    let folder = cache::prometheus();
    if !folder.join("promtool").is_file() {
        let (version, package) = (cache::PROMETHEUS, cache::prometheus_package());
        unpack(
            "prometheus",
            version,
            "PILLARBOX_PROMETHEUS",
            &package,
            |_| Ok(()),
        )?;
        ensure!(
            folder.join("promtool").is_file(),
            "there is no promtool in {}",
            folder.display()
        );
    }
    Ok(folder)
}

/// Gets a package of this version and unpacks it into the cache, if `check` accepts it.
fn unpack(
    package: &str,
    version: &str,
    variable: &str,
    target: &Path,
    check: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    ensure!(
        works("apt-get", &["--version"]),
        "only Debian's package has it; set {variable} to a {package} {version}"
    );
    update();
    progress(&format!("{package} {version} (Debian: {package})"));
    into_cache(target, |folder| {
        // Debian appends its own revision to the version.
        let wanted = format!("{package}={version}-*");
        run(apt_get().args(["download", &wanted]).current_dir(folder))?;
        let archive = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .context("apt-get download left no package")?;
        let unpacked = folder.join("unpacked");
        run(Command::new("dpkg").arg("-x").arg(archive).arg(&unpacked))?;
        check(&unpacked)?;
        Ok(unpacked)
    })
}

/// Installs packages if that is possible without a question: as root, with apt-get.
pub(super) fn install(what: &str, packages: &[&str]) -> Result<()> {
    if !cache::running_as_root() || !works("apt-get", &["--version"]) {
        bail!(
            "install the package {} (apt-get as root would do it here)",
            packages.join(" ")
        );
    }
    update();
    progress(&format!("{what} (Debian: {})", packages.join(" ")));
    let _quiet = NoServices::new();
    run(apt_get()
        .args(["install", "-y", "--no-install-recommends"])
        .args(packages))
    .map(drop)
}

/// Once per run. Old lists may still work if they can't be updated.
fn update() {
    static UPDATED: OnceLock<bool> = OnceLock::new();
    UPDATED.get_or_init(|| {
        progress("Debian's package lists");
        run(apt_get().arg("update")).is_ok()
    });
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-q", "-o", "DPkg::Lock::Timeout=120"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Prevents Debian from starting the services it installs: the tests start their own.
struct NoServices {
    policy: Option<&'static Path>,
}

impl NoServices {
    fn new() -> Self {
        let policy = Path::new("/usr/sbin/policy-rc.d");
        if policy.exists() {
            return Self { policy: None };
        }
        let written = fs::write(policy, "#!/bin/sh\nexit 101\n")
            .and_then(|()| fs::set_permissions(policy, fs::Permissions::from_mode(0o755)));
        Self {
            policy: written.is_ok().then_some(policy),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(policy) = self.policy {
            let _ = fs::remove_file(policy);
        }
    }
}
