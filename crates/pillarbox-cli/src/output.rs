//! What goes to the person, and how: data on stdout, the rest on stderr, colours and progress only on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize;
use pillarbox_relay::{
    connect::{self, OpenStore},
    store::{StoreError, StoreErrorKind},
};
use serde::Serialize;

use crate::{
    cli::Global,
    config::{self, Settings, Sources},
    logging,
};

/// What a command answers: exit 0 or 1. An error is exit 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
}

/// What every command is given.
pub(crate) struct Context {
    pub global: Global,
    pub json: bool,
    /// stdout is a terminal, so progress and redrawing make sense.
    pub terminal: bool,
    /// stdout may have colours.
    pub colour: bool,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let terminal = io::stdout().is_terminal();
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            json: global.json,
            terminal,
            colour: terminal && wanted && !global.json,
            global,
        }
    }

    pub(crate) fn sources(&self) -> Sources {
        self.global.sources()
    }

    pub(crate) fn settings(&self) -> Result<Settings> {
        config::settings(&self.sources())
    }

    /// Starts logging at `level` unless the person asked for another.
    pub(crate) fn log(&self, level: &str) -> Result<()> {
        logging::start(&self.global, level)
    }

    /// One JSON value on a line of stdout.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<()> {
        self.print(&serde_json::to_string(value)?)
    }

    /// A line of data.
    pub(crate) fn print(&self, line: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }

    /// A line for the person. Nothing is said with `--json`.
    pub(crate) fn say(&self, line: &str) {
        if !self.json {
            tell(line);
        }
    }

    pub(crate) fn good(&self, text: &str) -> String {
        if self.colour {
            text.green().to_string()
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bad(&self, text: &str) -> String {
        if self.colour {
            text.red().to_string()
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn quiet(&self, text: &str) -> String {
        if self.colour {
            text.dimmed().to_string()
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn strong(&self, text: &str) -> String {
        if self.colour {
            text.bold().to_string()
        } else {
            text.to_owned()
        }
    }
}

/// The store the settings name.
pub(crate) fn open_store(settings: &Settings) -> Result<OpenStore> {
    connect::store(&settings.database).map_err(store_error)
}

/// A store's error in its own words; with its causes, except where the words say all there is to do.
pub(crate) fn store_error(error: StoreError) -> anyhow::Error {
    match error.kind {
        StoreErrorKind::NotMigrated => anyhow::anyhow!("{error}"),
        _ => anyhow::anyhow!(error.chain()),
    }
}

/// A table without lines, as wide as its contents.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    table
}

/// A line on stderr. That nobody reads it is no reason to fail.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says what went wrong. A reader that went away is a normal end.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe);
    if broken_pipe {
        return ExitCode::SUCCESS;
    }
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // Some errors repeat their source's words in their own.
        if !text.ends_with(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&cause);
        }
    }
    tell(&format!("error: {text}"));
    ExitCode::from(2)
}
