//! Variables such as `PILLARBOX_OUTBOX__DATABASE__URL`: two underscores separate the levels.

use anyhow::{Result, bail};
use serde_json::Value;

use super::{
    file,
    tree::{Kind, Node, Origin},
};

const PREFIX: &str = "PILLARBOX_";
/// No key is nested deeper. Recursion through the tree needs stack for each level.
const LEVELS_MAX: usize = 16;

/// Overrides values of the tree with the variables.
pub(super) fn apply(tree: &mut Node, variables: impl Iterator<Item = (String, String)>) -> Result<()> {
    for (name, value) in variables {
        let Some(path) = name.strip_prefix(PREFIX).filter(|path| path.contains("__")) else {
            continue;
        };
        let path = path.to_ascii_lowercase();
        let steps: Vec<&str> = path.split("__").collect();
        if steps.len() > LEVELS_MAX {
            let start: String = name.chars().take(60).collect();
            bail!(
                "the environment variable {start}…: no key is {} levels deep",
                steps.len()
            );
        }
        set(tree, &steps, value_of(&value), &Origin::Variable(name.clone()))?;
    }
    Ok(())
}

/// Sets one value at a path and creates the maps above it.
pub(super) fn set(tree: &mut Node, steps: &[&str], value: Kind, origin: &Origin) -> Result<()> {
    let Some((step, rest)) = steps.split_first() else {
        tree.kind = value;
        tree.origin = origin.clone();
        return Ok(());
    };
    if matches!(tree.kind, Kind::Scalar(Value::Null)) {
        tree.kind = Kind::Map(Default::default());
    }
    let next = match &mut tree.kind {
        Kind::Map(map) => map.entry((*step).to_owned()).or_insert_with(|| Node {
            origin: origin.clone(),
            kind: Kind::Scalar(Value::Null),
        }),
        Kind::List(list) => {
            let count = list.len();
            match step.parse::<usize>().ok().and_then(|n| list.get_mut(n)) {
                Some(node) => node,
                None => bail!(
                    "{}: the list has no entry `{step}`: it has {count}, counted from 0",
                    shown(origin)
                ),
            }
        }
        Kind::Scalar(_) => bail!(
            "{}: `{step}` is below a plain value, which has no keys",
            shown(origin)
        ),
    };
    set(next, rest, value, origin)
}

fn shown(origin: &Origin) -> String {
    match origin {
        Origin::Variable(name) => format!("the environment variable {name}"),
        Origin::Flag(name) => (*name).to_owned(),
        Origin::Line(line) => format!("line {line}"),
    }
}

/// A YAML value. But an address, and text that YAML would read as a map or can't read, stays plain text.
fn value_of(text: &str) -> Kind {
    let plain = || Kind::Scalar(text.into());
    if text.contains("://") {
        return plain();
    }
    match file::parse(text) {
        Ok(Node {
            kind: kind @ (Kind::Scalar(_) | Kind::List(_)),
            ..
        }) => kind,
        _ => plain(),
    }
}
