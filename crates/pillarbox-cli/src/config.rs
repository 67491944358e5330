//! From a YAML file, the environment and the flags to the relay's options.
//!
//! A [`file`](mod@file) becomes a [`tree`] whose values know their line. The [`environment`] and the flags
//! override its values. The tree is checked against the JSON Schema of [`schema`] (see [`unknown`]). The
//! typed result is then checked by [`build`] for what a schema can't express: names that refer to each other,
//! addresses, patterns.

mod build;
mod environment;
mod file;
#[cfg(test)]
mod fuzz;
pub(crate) mod schema;
mod show;
#[cfg(test)]
mod tests;
mod tree;
mod unknown;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

pub(crate) use self::build::{
    HttpSettings, JwtSettings, KeySource, Monitoring, NamedSink, Rate, Settings, TlsSettings, TokenSettings,
};
pub(crate) use self::schema::Role;
pub(crate) use self::show::{address, can_be_opened, in_force, sink_address};
use self::tree::{Kind, Node, Origin};

/// Used if it exists and no other file is given.
const DEFAULT_FILE: &str = "pillarbox.yaml";

/// The flags that concern the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    pub file: Option<PathBuf>,
    pub database: Option<String>,
    pub sink: Option<String>,
    pub listen: Option<String>,
}

/// A configuration that matches its schema, and the places of its values.
pub(crate) struct Loaded {
    pub config: schema::Config,
    pub file: Option<PathBuf>,
    /// No database is configured: the embedded default is used.
    pub default_database: bool,
    tree: Node,
}

/// One mistake, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub place: String,
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// All mistakes of a configuration.
#[derive(Debug)]
pub(crate) struct Invalid(pub Vec<Problem>);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Invalid {}

/// The effective configuration, ready for use.
pub(crate) fn settings(sources: &Sources) -> Result<Settings> {
    load(sources)?.settings()
}

pub(crate) fn load(sources: &Sources) -> Result<Loaded> {
    load_from(
        sources,
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    )
}

fn load_from(sources: &Sources, variables: impl Iterator<Item = (String, String)>) -> Result<Loaded> {
    let default = Path::new(DEFAULT_FILE);
    let path = sources
        .file
        .clone()
        .or_else(|| default.is_file().then(|| default.to_owned()));
    let tree = match &path {
        Some(path) => file::read(path)?,
        None => Node::empty(),
    };
    overlay(tree, path, sources, variables)
}

fn overlay(
    mut tree: Node,
    path: Option<PathBuf>,
    sources: &Sources,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Loaded> {
    if !matches!(tree.kind, Kind::Map(_)) {
        bail!(
            "{}: a configuration is a group of keys under `outbox:`",
            tree.place(path.as_deref())
        );
    }
    environment::apply(&mut tree, variables)?;
    flags(&mut tree, sources)?;
    let problems = unknown::problems(&tree, &json_schema(), path.as_deref());
    if !problems.is_empty() {
        return Err(Invalid(problems).into());
    }
    let default_database = matches!(tree.nearest("outbox.database.url").kind, Kind::Map(_));
    let value = without_nulls(tree.clone().into_json());
    let mut config: schema::Config =
        serde_json::from_value(value).context("the configuration can't be read")?;
    if config.outbox.sinks.is_empty() {
        config
            .outbox
            .sinks
            .insert("stream".into(), schema::Sink::embedded());
    }
    Ok(Loaded {
        config,
        file: path,
        default_database,
        tree,
    })
}

impl Loaded {
    pub(crate) fn settings(&self) -> Result<Settings> {
        build::settings(self).map_err(|problems| {
            let place = |path: &str| self.tree.nearest(path).place(self.file.as_deref());
            Invalid(
                problems
                    .into_iter()
                    .map(|(path, text)| Problem {
                        place: place(&path),
                        text: format!("`{}`: {text}", show::word(&path)),
                    })
                    .collect(),
            )
            .into()
        })
    }
}

/// The configuration's JSON Schema.
pub(crate) fn json_schema() -> Value {
    schemars::schema_for!(schema::Config).to_value()
}

fn flags(tree: &mut Node, sources: &Sources) -> Result<()> {
    let text = |text: &str| Kind::Scalar(text.into());
    if let Some(url) = &sources.database {
        environment::set(
            tree,
            &["outbox", "database", "url"],
            text(url),
            &Origin::Flag("--database"),
        )?;
    }
    if let Some(listen) = &sources.listen {
        environment::set(
            tree,
            &["outbox", "http", "listen"],
            text(listen),
            &Origin::Flag("--listen"),
        )?;
    }
    if let Some(url) = &sources.sink {
        // One sink for everything: ignore the sinks and routes of the file.
        let origin = Origin::Flag("--sink");
        environment::set(tree, &["outbox", "sinks"], Kind::Map(Default::default()), &origin)?;
        environment::set(tree, &["outbox", "routes"], Kind::List(Vec::new()), &origin)?;
        environment::set(tree, &["outbox", "sinks", "sink", "url"], text(url), &origin)?;
    }
    Ok(())
}

/// A key without a value means its default.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| (k, without_nulls(v)))
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}
