//! The list of torture campaigns: every test named `torture_…`, in a crate's integration tests or next to its
//! code.
//!
//! They are found in the sources. So a campaign needs no registration, and listing builds nothing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Campaign {
    /// Without the leading `torture_`.
    pub(crate) name: String,
    /// The name in the test harness: `faults::torture_kill`.
    pub(crate) test: String,
    pub(crate) summary: String,
    pub(crate) kind: Kind,
}

/// The test binary of a crate that contains the campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integration,
    Unit,
}

pub(crate) fn all(root: &Path) -> Result<Vec<Campaign>> {
    let mut found = Vec::new();
    let crates = root.join("crates");
    for entry in fs::read_dir(&crates).with_context(|| format!("cannot read {}", crates.display()))? {
        let folder = entry?.path();
        for (part, kind) in [("tests/it", Kind::Integration), ("src", Kind::Unit)] {
            let tests = folder.join(part);
            if tests.is_dir() {
                walk(&tests, "", kind, &mut found)?;
            }
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn walk(folder: &Path, module: &str, kind: Kind, found: &mut Vec<Campaign>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let inner = match stem.as_str() {
            "main" | "lib" | "mod" => module.to_owned(),
            name => format!("{module}{name}::"),
        };
        if path.is_dir() {
            walk(&path, &inner, kind, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(in_source(&fs::read_to_string(&path)?, &inner, kind));
        }
    }
    Ok(())
}

fn in_source(source: &str, module: &str, kind: Kind) -> Vec<Campaign> {
    let mut summary = String::new();
    let mut found = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            if summary.is_empty() {
                comment.trim().clone_into(&mut summary);
            }
        } else if let Some((_, rest)) = line.split_once("fn torture_") {
            let name: String = rest
                .chars()
                .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
                .collect();
            let test = format!("{module}torture_{name}");
            found.push(Campaign {
                name,
                test,
                summary: std::mem::take(&mut summary),
                kind,
            });
        } else if !line.starts_with("#[") {
            summary.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_is_found_with_its_module_and_its_first_line_of_prose() {
        let source = "/// Kills relays.\n/// Many.\n#[tokio::test]\nasync fn torture_kill() {\n}\n\n/// No campaign.\nfn helper() {}\n\n#[test]\nfn torture_plain() {}\n";
        let campaign = |name: &str, summary: &str| Campaign {
            name: name.to_owned(),
            test: format!("faults::torture_{name}"),
            summary: summary.to_owned(),
            kind: Kind::Unit,
        };
        assert_eq!(
            in_source(source, "faults::", Kind::Unit),
            [campaign("kill", "Kills relays."), campaign("plain", "")]
        );
    }
}
