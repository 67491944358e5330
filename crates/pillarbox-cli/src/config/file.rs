//! Reads a file into the tree.

use std::{io::Read, path::Path};

use anyhow::{Context as _, Result, bail};
use serde_saphyr::{Options, Spanned};

use super::tree::{Kind, Node};

/// A configuration is written by hand: a larger file is something else.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// No configuration is nested deeper; each level needs stack.
const LEVELS_MAX: usize = 24;

pub(super) fn read(path: &Path) -> Result<Node> {
    let file = std::fs::File::open(path)
        .with_context(|| format!("can't open the configuration file {}", path.display()))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("can't read the configuration file {}", path.display()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!(
            "{} is larger than {FILE_BYTES_MAX} bytes: it is not a configuration file",
            path.display()
        );
    }
    parse(&text).map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))
}

pub(super) fn parse(text: &str) -> Result<Node, String> {
    if text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
    {
        return Ok(Node::empty());
    }
    let mut options = Options::default();
    if let Some(budget) = &mut options.budget {
        budget.max_depth = LEVELS_MAX;
    }
    serde_saphyr::from_str_with_options::<Spanned<Kind>>(text, options)
        .map(Node::from)
        // With its snippet the message would show the lines around the place, which may contain a password.
        .map_err(|error| error.without_snippet().to_string())
}
